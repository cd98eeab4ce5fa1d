"""``airflow mail receive`` and ``airflow mail events``: events that the service pushes, and the token in the URL."""

from __future__ import annotations

import json
import logging
import sys
import time
from argparse import Namespace
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_mail._config import ReceiverSettings
from airflow_provider_mail._metrics import DEAD_LETTERS, INBOX_BYTES, INBOX_OLDEST, INBOX_PUSHES, Metric
from airflow_provider_mail._task.storage import sql_hook
from airflow_provider_mail.api.errors import MailConfigError, MailConflictError, MailError
from airflow_provider_mail.api.webhooks import (
    EventToggles,
    GetWebhook,
    GetWebhookResponse,
    SaveWebhook,
    SenderCallback,
    configure_webhook,
)
from airflow_provider_mail.cli.commands import command, fail, show
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.utils.events import erase_events, replay_dead_letters
from airflow_provider_mail.webhook.drain import count_by_reason
from airflow_provider_mail.webhook.events import Reason
from airflow_provider_mail.webhook.health import receiver_status
from airflow_provider_mail.webhook.inbox import InboxState, open_inbox
from airflow_provider_mail.webhook.tokens import (
    HIDDEN,
    TOKENS_SECONDS,
    TokenOwner,
    Tokens,
    check_tokens,
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

MAX_GRACE_HOURS = 8760

SPREAD_SECONDS = TOKENS_SECONDS + 1
"""After this time, every receiver knows a new token."""


@command
def receive(args: Namespace) -> None:
    {"rotate": rotate, "status": status}.get(args.action, serve)(args)


def serve(args: Namespace) -> None:
    """Receive until the process is ended."""
    import uvicorn

    if args.workers < 1:
        fail("--workers: must be at least 1")
    ReceiverSettings.from_airflow()
    check_tokens(Tokens(open_inbox()).valid())
    print(f"Receiving at http://{args.host}:{args.port}/{HIDDEN}", flush=True)
    logging.disable(logging.NOTSET)
    uvicorn.run(
        APP,
        host=args.host,
        port=args.port,
        workers=args.workers,
        lifespan="on",
        http="h11",  # httptools reads headers of any length, from everybody
        ws="none",
        proxy_headers=False,  # or anybody could write to the log: X-Forwarded-For is shown as the client
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def status(args: Namespace) -> None:
    """Print the state of the inbox, the tokens and the dead letters; exit with 1 if something needs to be done."""
    state = receiver_status(ReceiverSettings.from_airflow())
    letters = count_by_reason(sql_hook(args.sql_conn_id), args.dead_letters_table) if args.sql_conn_id else None
    if args.prometheus:
        print(_prometheus(state.inbox, letters), end="")
        return
    problems = [message for message, _ in state.problems]
    data = {
        "waiting_pushes": state.inbox.waiting_pushes,
        "waiting_bytes": state.inbox.waiting_bytes,
        "max_bytes": state.max_bytes,
        "oldest_received_at": state.inbox.oldest.isoformat() if state.inbox.oldest else None,
        "oldest_seconds": state.inbox.oldest_seconds,
        "is_old": state.inbox.is_old,
        "tokens": dict(state.tokens),
        "dead_letters": None if letters is None else dict(letters),
        "problems": problems,
    }
    rows = [{"what": name, "value": _shown(value)} for name, value in data.items()]
    show(rows, args.output, data)
    if problems:
        raise SystemExit(1)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {count}" for name, count in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(value) or "none"
    return "unknown" if value is None else str(value)


def _prometheus(inbox: InboxState, letters: Mapping[Reason, int] | None) -> str:
    """The state as Prometheus reads it, with the names that `statsd_exporter` gives to the metrics of Airflow."""
    gauges: dict[Metric, dict[str, int]] = {
        INBOX_PUSHES: {"": inbox.waiting_pushes},
        INBOX_BYTES: {"": inbox.waiting_bytes},
        INBOX_OLDEST: {"": inbox.oldest_seconds},
        DEAD_LETTERS: {f"{{reason={json.dumps(reason)}}}": count for reason, count in sorted((letters or {}).items())},
    }
    lines = []
    for metric, samples in gauges.items():
        name = f"airflow_{metric.name.replace('.', '_')}"
        lines += [f"# TYPE {name} gauge\n"] * bool(samples)
        lines += [f"{name}{labels} {value}\n" for labels, value in samples.items()]
    return "".join(lines)


def rotate(args: Namespace) -> None:
    """Make a new token, save it at the service, and let the others end.

    The new token is valid before the service uses it, and the old ones remain valid after the service has stopped
    using them: whenever this command is interrupted, pushes are accepted, and it can be run again.
    """
    if not 0 <= args.grace_hours <= MAX_GRACE_HOURS:
        fail(f"--grace-hours: must be from 0 to {MAX_GRACE_HOURS}")
    settings, mail_conn_id = ReceiverSettings.from_airflow(), args.conn_id
    if args.url:
        settings = replace(settings, receive_url=args.url)  # which checks it
    inbox = open_inbox()
    hook = MailHook(mail_conn_id)
    tokens = Tokens(inbox, TokenOwner.of(mail_conn_id, hook.get_conn().config))
    inbox.create()
    base, token, grace = settings.receive_url, new_token(), timedelta(hours=args.grace_hours)
    with tokens.rotation() as cursor:
        saved = hook.send(GetWebhook())
        others = tokens.claim(_digests(saved))
        known = tokens.digests(cursor)
        if args.no_save:
            if not base:
                raise MailConfigError(NO_URL)
            tokens.add(token)
            print(f"Save this URL at the service; it is not shown again:\n\n  {base.rstrip('/')}/{token}\n")
        else:
            request = _request(saved, known, token, base, enable=args.enable)
            tokens.add(token)
            _wait("every receiver knows the new token", SPREAD_SECONDS)
            try:
                changed = configure_webhook(hook.get_conn(), request)
            except MailError as error:
                fail(f"{error}\nThe former token remains valid; rotate again.")
            print(f"Saved: {', '.join(changed)}.")
            if not (args.enable or saved.trans_enable):
                print("The service pushes nothing: trans_enable is off; see --enable.")
            _wait("pushes to the former URL have arrived", SPREAD_SECONDS - grace.total_seconds())
        try:
            used = _digests(hook.send(GetWebhook())) & {*known, token_digest(token)}
        except MailError as error:
            fail(f"{error}\nNo token ends, since the URLs of the service are not known; rotate again.")
        if args.no_save:
            # It is not known when a URL is saved by hand: until the next rotation, the former token counts as used.
            used |= {*tokens.digests(cursor)[:2]}
        elif token_digest(token) not in used:
            raise MailConflictError(
                "rotate again: another program has changed the URLs of the service meanwhile. No token ends"
            )
        elif len(used) > 1:
            print("URLs of single senders have former tokens, which do not end; rotate again to replace them.")
        tokens.retire_others(cursor, used, grace)
    print(
        f"{'Older' if args.no_save else 'Former'} tokens of connection {mail_conn_id!r} end in {args.grace_hours:g} h."
    )
    if others:
        print(f"{others} tokens of this connection id belong to other services, accounts or API keys: they do not end.")


def _wait(purpose: str, seconds: float) -> None:
    if seconds > 0:
        print(f"Waiting {seconds:g} s until {purpose} ...", flush=True)
        time.sleep(seconds)


NO_URL = "[mail] receive_url: the URL of the receiver is not known; set it, or pass --url (https://events.example.com)"


def _request(saved: GetWebhookResponse, known: Collection[str], token: str, base: str, *, enable: bool) -> SaveWebhook:
    """Return the request that saves a new token and changes no other setting.

    :param known: digests of our tokens.
    :param base: the URL of the receiver without a token. Empty: that of the saved URL, if it is one of ours.
    :raises MailConfigError: the URL of the receiver is not known.
    """
    url = saved.trans_callback_url or ""
    if base:
        url = f"{base.rstrip('/')}/{token}"
    elif _digest(url) in known:
        url = with_token(url, token)
    else:
        raise MailConfigError(NO_URL)
    callbacks = [
        SenderCallback(sender=callback.sender, url=with_token(callback.url, token))
        for callback in saved.callbacks
        if callback.url and _digest(callback.url) in known
    ]
    all_events = EventToggles(**dict.fromkeys(EventToggles.model_fields, True)) if enable else None
    return SaveWebhook(
        trans_callback_url=url,
        trans_callback_url_extra=callbacks or None,
        trans_event=all_events,
        trans_enable=True if enable else None,
    )


def _digests(saved: GetWebhookResponse) -> set[str]:
    return {_digest(url or "") for url in (saved.trans_callback_url, *(callback.url for callback in saved.callbacks))}


def _digest(url: str) -> str:
    return token_digest(token_of(urlsplit(url).path))


@command
def replay(args: Namespace) -> None:
    counts = replay_dead_letters(
        sql_conn_id=args.sql_conn_id, table=args.table, dead_letters_table=args.dead_letters_table
    )
    print(f"Dead letters read: {counts['read']}, new events: {counts['stored']}, dead letters left: {counts['left']}")


@command
def erase(args: Namespace) -> None:
    email = sys.stdin.readline() if args.email == "-" else args.email
    try:
        counts = erase_events(
            email,
            sql_conn_id=args.sql_conn_id,
            table=args.table,
            dead_letters_table=args.dead_letters_table,
            inbox_conn_id=args.inbox_conn_id,
            inbox_table=args.inbox_table,
        )
    except ValueError as error:
        fail(f"--{error}")
    forgotten = f"; forgotten in {counts['audiences']} audiences" if counts["audiences"] else ""
    forgotten += f"; {counts['mails']} mails of the memory deleted" if counts["mails"] else ""
    print(
        f"Deleted: {counts['events']} events, {counts['dead_letters']} dead letters; "
        f"pushes changed: {counts['pushes']}{forgotten}"
    )
