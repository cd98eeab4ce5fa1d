"""The connection type ``mail``: its fields, declared once, and how a connection becomes a client's settings.

Airflow 3.2 and later build the form from :func:`conn_fields` without importing the hook; 3.0 and 3.1 ask the hook for
widgets. Both come from :data:`FIELDS`. Imported by ``get_provider_info``, so by every Airflow command: keep it light.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from airflow_provider_mail.api.config import ClientConfig

CONN_TYPE = "mail"
HOOK_NAME = "Mail"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form beyond Airflow's own, kept in the connection's ``extra``.

    Airflow masks by name: a secret's name must hold ``token``, ``secret`` or another word that it knows.

    :param kind: JSON schema type.
    :param schema: further JSON schema; ``section`` puts the field under a heading of that name.
    """

    label: str
    description: str
    kind: str = "string"
    secret: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)


_OAUTH = {"section": "OAuth"}
_NETWORK = {"section": "Network and limits"}

FIELDS: dict[str, Field] = {
    "auth_type": Field(
        "Authentication",
        "api_key sends the API key above; oauth sends the OAuth access token below. Default: api_key.",
        schema={"enum": ["api_key", "oauth"]},
    ),
    "sandbox": Field(
        "Sandbox",
        "Nobody is mailed and nothing changes: the service only checks; writes without a sandbox mode are refused.",
        kind="boolean",
    ),
    "team_name": Field("Team", "Name of the team that the key belongs to; kept beside the statistics."),
    "campaign_url": Field(
        "Campaign page",
        "URL of a campaign's page on the platform, with {mail_name}, {guid} or {id} in it; tasks then link to theirs.",
    ),
    "access_token": Field("OAuth access token", "Sent when authentication is oauth.", secret=True, schema=_OAUTH),
    "client_id": Field("OAuth client id", "Of the OAuth application; needed to obtain a token.", schema=_OAUTH),
    "client_secret": Field(
        "OAuth client secret", "Of the OAuth application; needed to obtain a token.", secret=True, schema=_OAUTH
    ),
    "redirect_uri": Field("OAuth redirect URI", "Of the OAuth application, exactly as registered.", schema=_OAUTH),
    "oauth_obtained_at": Field("OAuth obtained at", "When the login command stored the token.", schema=_OAUTH),
    "oauth_expires_at": Field("OAuth expires at", "When that token ends; empty when it does not.", schema=_OAUTH),
    "timeout": Field(
        "Timeout (s)", "Seconds to wait for a connection, and for each part of an answer. Default: 30.",
        kind="number", schema={"minimum": 1, "maximum": 3600, **_NETWORK},
    ),
    "requests_per_second": Field(
        "Requests per second", "At most, for each task. Default: no limit.",
        kind="number", schema={"minimum": 0, **_NETWORK},
    ),
    "max_in_flight": Field(
        "Requests in flight", "At most under way at once, for each task. Default: 16.",
        kind="integer", schema={"minimum": 1, "maximum": 1000, **_NETWORK},
    ),
    "ca_bundle": Field(
        "CA bundle", "File of certificates (PEM) to trust besides the usual ones.", schema=_NETWORK
    ),
    "proxy": Field(
        "Proxy", "URL of an HTTP proxy, without a password. Default: what the environment says.", schema=_NETWORK
    ),
}  # fmt: skip

UI_FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["schema", "login"],
    "relabeling": {"host": "Base URL", "password": "API key"},
    "placeholders": {"host": "https://api.example.com", "port": "443"},
}


def conn_fields() -> dict[str, Any]:
    """The form for Airflow 3.2 and later (``conn-fields`` of the provider information)."""
    form = {}
    for name, item in FIELDS.items():
        schema: dict[str, Any] = {"type": [item.kind, "null"], **item.schema}
        if item.secret:
            schema["format"] = "password"
        form[name] = {"label": item.label, "description": item.description, "schema": schema}
    return form


def form_widgets() -> dict[str, Any]:
    """The form for Airflow 3.0 and 3.1 (``get_connection_form_widgets``).

    Those take only these four kinds of fields, and refuse the hook for any other: numbers with a fraction are texts.
    """
    from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
    from flask_babel import lazy_gettext
    from wtforms import BooleanField, IntegerField, PasswordField, StringField
    from wtforms.validators import Optional as MayBeEmpty
    from wtforms.validators import any_of

    widgets = {}
    for name, item in FIELDS.items():
        options: dict[str, Any] = {"description": item.description, "validators": [MayBeEmpty()]}
        if "enum" in item.schema:
            options["validators"].append(any_of(item.schema["enum"]))
        if item.kind == "boolean":
            kind = BooleanField
        elif item.secret:
            kind, options["widget"] = PasswordField, BS3PasswordFieldWidget()
        else:
            kind = IntegerField if item.kind == "integer" else StringField
            options["widget"] = BS3TextFieldWidget()
        widgets[name] = kind(lazy_gettext(item.label), **options)
    return widgets


class ConnectionLike(Protocol):
    """What is read of an Airflow connection."""

    conn_id: str
    conn_type: str | None
    host: str | None
    port: int | None
    schema: str | None
    password: str | None
    extra: str | None


def fields_of(connection: ConnectionLike) -> dict[str, Any]:
    """The fields of :data:`FIELDS` that are set, by name.

    A form that was saved holds null for every field that nobody touched, and an emptied one holds "": both are not set.

    :raises MailConfigError: when the connection is of another type, or ``extra`` is no JSON object or holds a field
        that does not exist. A ``sandbox`` with a typing mistake must not send real mail.
    """
    from airflow_provider_mail.api.errors import MailConfigError

    if connection.conn_type not in (CONN_TYPE, "", None):
        # Its password is none of ours, and must not be sent to the service.
        raise MailConfigError(
            f"connection {connection.conn_id!r}: conn_type is {connection.conn_type!r}, {CONN_TYPE!r} is needed"
        )
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        extra = None
    where = f"connection {connection.conn_id!r}: extra"
    if not isinstance(extra, dict):
        raise MailConfigError(f"{where}: is no JSON object")
    if unknown := extra.keys() - FIELDS.keys():
        raise MailConfigError(f"{where}: unknown field {', '.join(sorted(unknown))}; known are {', '.join(FIELDS)}")
    return {name: value for name, value in extra.items() if value is not None and value != ""}


def client_config(connection: ConnectionLike, **instead: Any) -> ClientConfig:
    """The settings of a client for a connection.

    :param instead: settings that differ from the connection's.
    :raises MailConfigError: naming the connection and each of its fields that is missing or wrong.
    """
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.errors import MailConfigError

    fields = fields_of(connection)
    settings = {name: value for name, value in fields.items() if name in ClientConfig.model_fields}
    try:
        if template := fields.get("campaign_url"):
            placeholders_of(str(template))
        given = {"base_url": base_url(connection), "api_key": connection.password, **settings, **instead}
        config = ClientConfig(**given)
        config.ssl_context()
    except MailConfigError as error:
        words = str(error)
        for ours, theirs in {"base_url": "host (base URL)", "api_key": "password (API key)"}.items():
            words = words.replace(f"{ours}:", f"{theirs}:")
        raise MailConfigError(f"connection {connection.conn_id!r}: {words}") from None
    return config


RENEWAL_SECONDS = 300
"""With less left the service gives a new token, and both work for the rest (document, "OAuth access token")."""


def token_ending(connection: ConnectionLike) -> str:
    """What to do when the access token ends soon or has ended; empty otherwise, and when that is not known."""
    ends = seconds_left(fields_of(connection))
    if ends is None or ends >= RENEWAL_SECONDS:
        return ""
    when = f"ends in {ends:.0f} s" if ends > 0 else "has ended"
    return (
        f"the OAuth access token {when}; renew it with: airflow mail oauth login --conn-id {connection.conn_id} "
        "(before Airflow 3.2: python -m airflow_provider_mail oauth login ...)"
    )


def seconds_left(fields: Mapping[str, Any]) -> float | None:
    """How long the token that the login command has stored is still good for; ``None`` when it is permanent or unknown.

    :raises MailConfigError: when ``oauth_expires_at`` is no time.
    """
    from datetime import UTC, datetime

    from airflow_provider_mail.api.errors import MailConfigError

    if not (text := fields.get("oauth_expires_at")):
        return None
    try:
        ends = datetime.fromisoformat(str(text))
    except ValueError:
        raise MailConfigError("oauth_expires_at: is no ISO 8601 time") from None
    return ((ends if ends.tzinfo else ends.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()


PLACEHOLDERS = ("mail_name", "guid", "id")
"""What may stand in braces in ``campaign_url``."""


def campaign_url(template: str, **known: object) -> str:
    """The address of a campaign's page on the platform.

    :param template: the connection's ``campaign_url``, as :func:`placeholders_of` lets it pass.
    :param known: what is known of the campaign, of :data:`PLACEHOLDERS`.
    :return: empty when the template names something that is not known.
    """
    from urllib.parse import quote

    texts = {name: quote(str(known.get(name) or ""), safe="") for name in placeholders_of(template)}
    return template.format(**texts) if all(texts.values()) else ""


def placeholders_of(template: str) -> set[str]:
    """What a ``campaign_url`` holds of :data:`PLACEHOLDERS`.

    :raises MailConfigError: when it is no such URL.
    """
    from string import Formatter
    from urllib.parse import urlsplit

    from airflow_provider_mail.api.errors import MailConfigError

    try:
        fields = [part[1:] for part in Formatter().parse(template) if part[1] is not None]
        url = urlsplit(template)
        # Only behind the host, and nothing that only a format knows.
        fits = all(name in PLACEHOLDERS and not form and not conversion for name, form, conversion in fields)
        fits &= url.scheme in ("http", "https") and bool(url.hostname) and not {"{", "@"} & set(url.netloc)
    except ValueError:
        fits = False
    if not fits or any(map(str.isspace, template)):
        raise MailConfigError(
            "campaign_url: must be a URL such as https://app.example.com/campaigns/{guid}; behind the host it may hold "
            f"{', '.join(f'{{{name}}}' for name in PLACEHOLDERS)} and nothing else in braces"
        )
    return {str(name) for name, _, _ in fields}


def base_url(connection: ConnectionLike) -> str:
    """The service's address: the host, with scheme and port where they are given apart from it."""
    host = (connection.host or "").strip()
    if not host:
        return ""
    if "://" not in host:
        host = f"{connection.schema or 'https'}://{host}"
    scheme, _, rest = host.partition("://")
    authority, slash, path = rest.partition("/")
    usual = {"https": 443, "http": 80}.get(scheme)
    if connection.port and connection.port != usual and ":" not in authority.rpartition("]")[2]:
        authority = f"{authority}:{connection.port}"
    return f"{scheme}://{authority}{slash}{path}"
