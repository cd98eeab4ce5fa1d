"""Messages that explain a connection failure and name the setting to fix.

The errors of the clients, the connection test and the commands share them.
"""

from __future__ import annotations

import errno
from ipaddress import ip_address
from urllib.parse import urlsplit

from airflow_provider_mail.api._core.transport import proxy_url
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
    chain_of,
)

NO_TLS = "the server does not use TLS; is it http:// instead of https:// ({http}), or another port?"

# The first key that occurs in the reason applies. The resolver's error numbers are negative.
CONNECT_MESSAGES = {
    "[SSL: WRONG_VERSION_NUMBER]": NO_TLS,
    "[SSL: RECORD_LAYER_FAILURE]": NO_TLS,
    "[SSL": "TLS fails; check host (base URL) and port.",
    "[Errno -": "no such host; check host (base URL).",
    f"[Errno {errno.ECONNREFUSED}]": "nothing listens there; check host (base URL) and port.",
    "ConnectTimeout": "the connection timed out; check host (base URL), port, and whether a firewall lies in between.",
    "ProxyError": "the proxy rejects the connection; check {proxy}.",
}
DEFAULT_MESSAGE = "check host (base URL), port and network."

# Failures before the proxy connects to the service.
PROXY_MESSAGES = {
    "[Errno -": "no such proxy host; check {proxy}.",
    f"[Errno {errno.ECONNREFUSED}]": "nothing listens at the proxy's address; check {proxy}.",
    "[Errno": "the proxy cannot be reached; check {proxy}.",
    "ConnectTimeout": "the connection to the proxy timed out; check {proxy}.",
}

_OWN_PROXY = "proxy"
_OTHER_PROXY = "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY in the environment"


def network_reason(error: Exception) -> str:
    """Return the message of the operating system or TLS library, which may be in a cause of httpx's error.

    :param error: httpx's error; that of the asynchronous client has no message of its own.
    """
    causes = list(chain_of(error))
    for cause in causes:
        if isinstance(cause, BaseExceptionGroup):  # one error for each address of the host
            for exception in cause.exceptions:
                causes += chain_of(exception)
    messages = map(str, causes)
    message = next((text for text in messages if "[Errno" in text or "[SSL" in text), str(error))
    return f"{type(error).__name__}: {message}"


def connect_error_message(reason: str, config: ClientConfig) -> str:
    """Explain why the service cannot be reached, at which address, through which proxy, and which setting to check.

    :param reason: see :func:`network_reason`, such as ``ConnectError: [Errno 111] Connection refused``.
    """
    proxy, setting = _proxy(config)
    candidates = [*(PROXY_MESSAGES.items() if proxy else ()), *CONNECT_MESSAGES.items()]
    message = next((message for key, message in candidates if key in reason), DEFAULT_MESSAGE)
    http = f"http://{config.base_url.partition('://')[2]}"
    through = f" through the proxy {proxy}" if proxy else ""
    meaning = message.format(proxy=setting, http=http)
    return f"{config.base_url} cannot be reached{through}: {meaning} ({reason})"


def explain(error: MailError, config: ClientConfig) -> str:
    service, credential = config.base_url, credential_of(config)
    text = str(error).removeprefix(f"{error.operation}: ")
    if isinstance(error, MailConnectError):
        return text
    if isinstance(error, MailAuthError):
        service_message = f": {error.service_message}" if error.service_message else ""
        return f"{service} rejects the {credential}{service_message}. Check it, and auth_type."
    if isinstance(error, MailRateLimitError):
        return f"{service} received too many requests; try again later."
    if isinstance(error, MailAnswerLostError):
        return f"{service} disconnects or is silent for {config.timeout:g} s; check host (base URL), port and timeout."
    if isinstance(error, MailAnswerError):
        return f"{service} does not respond as the service does: {text}"
    if isinstance(error, MailRejectedError):
        return f"{service} rejects the request ({text}); check host (base URL) and {credential}."
    if isinstance(error, MailServerError):
        return f"{service} has an internal error ({text}); try again later."
    return f"{service}: {text}"


def clear_text_warning(config: ClientConfig) -> str:
    """Return a warning when the credential is sent unencrypted; empty for HTTPS and for loopback addresses."""
    url = urlsplit(config.base_url)
    if url.scheme == "https" or _is_loopback(url.hostname or ""):
        return ""
    return (
        f"host (base URL): {config.base_url} is not encrypted, so others can read the {credential_of(config)} "
        "and everything else that is sent: use https://"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def credential_of(config: ClientConfig) -> str:
    return "access_token (OAuth access token)" if config.auth_type == "oauth" else "password (API key)"


def _proxy(config: ClientConfig) -> tuple[str, str]:
    """Return the proxy without its password (empty: no proxy), and the setting that names it."""
    if config.proxy:
        return config.proxy, _OWN_PROXY
    scheme, _, host = (proxy_url(config) or "").rpartition("://")
    return f"{scheme}://{host.rpartition('@')[2]}" if scheme else "", _OTHER_PROXY
