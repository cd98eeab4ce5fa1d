"""Is the connection right? One request that changes nothing, and its outcome in words that name what to mend."""

from __future__ import annotations

import errno

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import (
    MailAnswerError,
    MailAnswerLostError,
    MailAuthError,
    MailConnectError,
    MailError,
    MailRateLimitError,
    MailRejectedError,
    MailServerError,
)
from airflow_provider_mail.api.lists import GetLists
from airflow_provider_mail.api.retry import RetryRule

PATIENCE = 10.0
"""Seconds: somebody sits in front of the button."""

# The first piece that is in the error's reason decides. The resolver's error numbers are negative.
UNREACHED = {
    "[SSL: WRONG_VERSION_NUMBER]": "no TLS is spoken there; is it http:// instead of https://, or another port?",
    "[SSL": "TLS fails; check host (base URL) and port.",
    "[Errno -": "there is no host of that name; check host (base URL).",
    f"[Errno {errno.ECONNREFUSED}]": "nothing listens there; check host (base URL) and port.",
    "ConnectTimeout": "nothing answers there; check host (base URL), port, and whether a firewall lies in between.",
    "ProxyError": "the proxy does not let it through; check proxy, or HTTPS_PROXY and HTTP_PROXY in the environment.",
}
ELSE_UNREACHED = "check host (base URL), port and proxy."


def check(config: ClientConfig) -> tuple[bool, str]:
    """Try the settings of a connection.

    :return: whether they work, and a sentence for a person.
    """
    once = config.model_copy(
        update={"retry": RetryRule(attempts=1, total_seconds=0), "timeout": min(config.timeout, PATIENCE)}
    )
    try:
        with MailClient(once) as client:
            lists = client.send(GetLists(page_size=1)).total_records or 0
    except MailError as error:
        return False, in_words(error, once)
    sandbox = " The connection is in sandbox mode: nothing is changed, nobody is mailed." if config.sandbox else ""
    return True, f"{config.base_url} accepts the {_credential(config)}; contact lists there: {lists}.{sandbox}"


def in_words(error: MailError, config: ClientConfig) -> str:
    """What an error means and what to mend."""
    service, credential = config.base_url, _credential(config)
    text = str(error).removeprefix(f"{error.operation}: ")
    if isinstance(error, MailConnectError):
        meaning = next((words for piece, words in UNREACHED.items() if piece in error.reason), ELSE_UNREACHED)
        way = f" through the proxy {config.proxy}" if config.proxy else ""
        return f"{service} cannot be reached{way}: {meaning} ({error.reason})"
    if isinstance(error, MailAuthError):
        said = f": {error.service_message}" if error.service_message else ""
        return f"{service} refuses the {credential}{said}. Check it, and that auth_type fits."
    if isinstance(error, MailRateLimitError):
        return f"{service} has had too many requests; try again later."
    if isinstance(error, MailAnswerLostError):
        return f"{service} hangs up or says nothing for {config.timeout:g} s; check host (base URL), port and timeout."
    if isinstance(error, MailAnswerError):
        return f"{service} does not answer as the service does: {text}"
    if isinstance(error, MailRejectedError):
        return f"{service} refuses the request ({text}); check host (base URL) and {credential}."
    if isinstance(error, MailServerError):
        return f"{service} has trouble of its own ({text}); try again later."
    return f"{service}: {text}"


def _credential(config: ClientConfig) -> str:
    return "access_token (OAuth access token)" if config.auth_type == "oauth" else "password (API key)"
