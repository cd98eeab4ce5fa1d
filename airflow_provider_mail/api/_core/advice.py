"""What a failure means and which setting to fix, in words for a person.

One place for them: the errors of the clients, and so of hooks and tasks, are made of these words, and the test button
and the commands say them too.
"""

from __future__ import annotations

import errno
from urllib.parse import urlsplit

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

NO_TLS = "no TLS is spoken there; is it http:// instead of https:// ({http}), or another port?"

# The first piece that is in the error's reason decides. The resolver's error numbers are negative.
UNREACHED = {
    "[SSL: WRONG_VERSION_NUMBER]": NO_TLS,
    "[SSL: RECORD_LAYER_FAILURE]": NO_TLS,
    "[SSL": "TLS fails; check host (base URL) and port.",
    "[Errno -": "there is no host of that name; check host (base URL).",
    f"[Errno {errno.ECONNREFUSED}]": "nothing listens there; check host (base URL) and port.",
    "ConnectTimeout": "nothing answers there; check host (base URL), port, and whether a firewall lies in between.",
    "ProxyError": "the proxy does not let it through; check {proxy}.",
}
ELSE_UNREACHED = "check host (base URL), port and network."

# What fails before the proxy has a word with the service concerns the proxy alone.
PROXY_UNREACHED = {
    "[Errno -": "there is no host of the proxy's name; check {proxy}.",
    f"[Errno {errno.ECONNREFUSED}]": "nothing listens at the proxy's address; check {proxy}.",
    "[Errno": "the proxy is not reached; check {proxy}.",
    "ConnectTimeout": "the proxy does not answer; check {proxy}.",
}

_OWN_PROXY = "proxy"
_OTHER_PROXY = "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY in the environment"


def network_reason(error: Exception) -> str:
    """What the network said: of errors that led to httpx's, the asynchronous client's says nothing itself."""
    causes = list(chain_of(error))
    for cause in causes:
        if isinstance(cause, BaseExceptionGroup):  # one for each address of the host
            causes += [deeper for each in cause.exceptions for deeper in chain_of(each)]
    told = next((str(each) for each in causes if "[Errno" in str(each) or "[SSL" in str(each)), str(error))
    return f"{type(error).__name__}: {told}"


def connect_error_message(reason: str, config: ClientConfig) -> str:
    """Say why the service was not reached, at which address, through which proxy, and which setting to check.

    :param reason: what the network said, such as ``ConnectError: [Errno 111] Connection refused``.
    """
    proxy, setting = _proxy(config)
    known = [*(PROXY_UNREACHED.items() if proxy else ()), *UNREACHED.items()]
    words = next((words for piece, words in known if piece in reason), ELSE_UNREACHED)
    http = f"http://{config.base_url.partition('://')[2]}"
    through = f" through the proxy {proxy}" if proxy else ""
    meaning = words.format(proxy=setting, http=http)
    return f"{config.base_url} cannot be reached{through}: {meaning} ({reason})"


def explain(error: MailError, config: ClientConfig) -> str:
    """What an error means and what to fix, without the operation: nobody asked for a particular one."""
    service, credential = config.base_url, credential_of(config)
    text = str(error).removeprefix(f"{error.operation}: ")
    if isinstance(error, MailConnectError):
        return text
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


def clear_text_warning(config: ClientConfig) -> str:
    """Warn of a base URL over which the credential travels unencrypted; empty when it does not leave this machine."""
    url = urlsplit(config.base_url)
    if url.scheme == "https" or _is_loopback(url.hostname or ""):
        return ""
    return (
        f"host (base URL): {config.base_url} is not encrypted, so the {credential_of(config)} and all that is sent "
        "can be read on the way: use https://"
    )


def _is_loopback(host: str) -> bool:
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def credential_of(config: ClientConfig) -> str:
    """The field that authenticates, as the form calls it."""
    return "access_token (OAuth access token)" if config.auth_type == "oauth" else "password (API key)"


def _proxy(config: ClientConfig) -> tuple[str, str]:
    """The proxy between here and the service, without its password (may be empty), and the setting that names it."""
    if config.proxy:
        return config.proxy, _OWN_PROXY
    # As httpx does where it is told of none.
    from urllib.request import getproxies, proxy_bypass

    target, proxies = urlsplit(config.base_url), getproxies()
    url = proxies.get(target.scheme) or proxies.get("all")
    if not url or proxy_bypass(target.hostname or ""):
        return "", _OTHER_PROXY
    scheme, _, rest = url.rpartition("://")
    return f"{scheme or 'http'}://{rest.rpartition('@')[2]}", _OTHER_PROXY
