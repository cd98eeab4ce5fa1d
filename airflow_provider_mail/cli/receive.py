"""``airflow mail receive``: take the events that the service pushes, and rotate the token in the URL."""

from __future__ import annotations

import logging
import time
from argparse import Namespace
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from airflow_provider_mail.api.errors import MailConfigError, MailError
from airflow_provider_mail.api.flows.configure_webhook import configure_webhook
from airflow_provider_mail.api.webhooks import EventToggles, GetWebhook, GetWebhookResponse, SaveWebhook, SenderCallback
from airflow_provider_mail.cli.commands import command, fail
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.webhook.settings import ReceiverSettings
from airflow_provider_mail.webhook.tokens import (
    HIDDEN,
    TOKENS_SECONDS,
    Tokens,
    new_token,
    token_digest,
    token_of,
    with_token,
)

APP = "airflow_provider_mail.webhook.app:app"

KEEP_ALIVE_SECONDS = 75
"""Longer than balancers keep an idle connection (mostly 60 s), so that they never use one that is just being closed."""

SHUTDOWN_SECONDS = 40
"""Longer than a push waits for the tokens and for the database."""

SPREAD_SECONDS = TOKENS_SECONDS + 1
"""After this time, every receiver knows a new token."""


@command
def receive(args: Namespace) -> None:
    """``airflow mail receive [rotate]``.

    :param args: the parsed arguments.
    """
    (rotate if args.action == "rotate" else serve)(args)


def serve(args: Namespace) -> None:
    """Receive until the process is ended.

    :param args: the parsed arguments.
    """
    import uvicorn

    if args.workers < 1:
        fail("--workers: must be at least 1")
    settings = ReceiverSettings.from_airflow()
    Tokens(settings.inbox()).check()
    print(f"Receiving at {settings.receive_url or f'http://{args.host}:{args.port}'}/{HIDDEN}", flush=True)
    logging.disable(logging.NOTSET)
    uvicorn.run(
        APP,
        host=args.host,
        port=args.port,
        workers=args.workers,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def rotate(args: Namespace) -> None:
    """Make a new token, save it at the service, and let the others end.

    The new token is valid before the service uses it, and the old ones remain valid after the service has left them:
    whenever this ends early, pushes are accepted, and it can be run again.

    :param args: the parsed arguments.
    """
    if args.grace_hours < 0:
        fail("--grace-hours: must be at least 0")
    settings, mail_conn_id = ReceiverSettings.from_airflow(), args.conn_id
    inbox = settings.inbox()
    tokens, hook = Tokens(inbox), MailHook(mail_conn_id)
    inbox.create()
    tokens.create()
    base, token = args.url or settings.receive_url, new_token()
    if args.no_save:
        if not base:
            raise MailConfigError(NO_URL)
        tokens.add(token, mail_conn_id)
        print(f"Save this URL at the service; it is not shown again:\n\n  {base.rstrip('/')}/{token}\n")
    else:
        saved = hook.send(GetWebhook())
        request = Rotation(tokens.digests(mail_conn_id), token, base).request(saved, enable=args.enable)
        tokens.add(token, mail_conn_id)
        print(f"Waiting {SPREAD_SECONDS:g} s until every receiver knows the new token ...", flush=True)
        time.sleep(SPREAD_SECONDS)
        try:
            changed = hook.run(configure_webhook(request))
        except MailError as error:
            fail(f"{error}\nThe former token remains valid; rotate again.")
        print(f"Saved: {', '.join(changed)}.")
        if not (args.enable or saved.trans_enable):
            print("The service pushes nothing: trans_enable is off; see --enable.")
    # Nobody knows when a URL is saved by hand: until the next rotation, the former token is as good as the new one.
    tokens.retire_others(token, mail_conn_id, timedelta(hours=args.grace_hours), kept=2 if args.no_save else 1)
    print(
        f"{'Older' if args.no_save else 'Former'} tokens of connection {mail_conn_id!r} end in {args.grace_hours:g} h."
    )


NO_URL = (
    "[mail] receive_url: the URL of the receiver is not known; set it, or pass --url "
    "(https://airflow.example.com/mail-events)"
)


@dataclass(frozen=True)
class Rotation:
    """What a rotation changes at the service.

    :param known: digests of the tokens of the connection.
    :param token: the new token.
    :param base: the URL of the receiver without a token. Empty: that of the saved URL, if it is one of ours.
    """

    known: set[str]
    token: str
    base: str

    def request(self, saved: GetWebhookResponse, *, enable: bool) -> SaveWebhook:
        """Return the request that saves the new token and changes no other setting.

        :param saved: the configuration at the service.
        :param enable: whether to switch on pushing, with all events.
        :raises MailConfigError: the URL of the receiver is not known.
        """
        url = saved.trans_callback_url or ""
        if self.base:
            url = f"{self.base.rstrip('/')}/{self.token}"
        elif self.is_ours(url):
            url = with_token(url, self.token)
        else:
            raise MailConfigError(NO_URL)
        moved = [
            SenderCallback(sender=each.sender, url=with_token(each.url, self.token))
            for each in saved.callbacks
            if each.url and self.is_ours(each.url)
        ]
        on = EventToggles(**dict.fromkeys(EventToggles.model_fields, True)) if enable else None
        return SaveWebhook(
            trans_callback_url=url,
            trans_callback_url_extra=moved or None,
            trans_event=on,
            trans_enable=True if enable else None,
        )

    def is_ours(self, url: str) -> bool:
        """Return whether a URL has one of our tokens.

        :param url: the URL.
        """
        return token_digest(token_of(urlsplit(url).path)) in self.known
