"""The connection type ``mail``: the fields of its form, and the conversion of a connection into ``ClientConfig``.

Airflow 3.2 and later build the form from :func:`conn_fields` without importing the hook; 3.0 and 3.1 call the hook for
widgets. Both use :data:`FIELDS`. Every Airflow command imports this module, so its imports must stay cheap.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv6Address
from string import Formatter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow_provider_mail.api.errors import MailConfigError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.flows.campaign_checks import CampaignCaps

CONN_TYPE = "mail"
HOOK_NAME = "Mail"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the form, stored in the connection's ``extra``.

    Airflow masks by name: the name of a secret must contain ``token``, ``secret`` or another word that Airflow masks.

    :param label: in the form; empty for a field that commands write and that the form does not have.
    :param schema: further JSON schema; ``section`` puts the field under a heading of that name.
    """

    label: str
    description: str
    json_type: str = "string"
    secret: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)


_OAUTH = {"section": "OAuth"}
_ADVANCED = {"section": "Advanced"}

FIELDS: dict[str, Field] = {
    "auth_type": Field(
        "Authentication",
        "api_key sends the API key above; oauth sends the OAuth access token below. Default: api_key.",
        schema={"enum": ["api_key", "oauth"]},
    ),
    "sandbox": Field(
        "Sandbox",
        "The service validates requests without effect; writes without a sandbox mode are rejected.",
        json_type="boolean",
    ),
    "team_name": Field("Team", "Name of the key's team; stored with the statistics."),
    "campaign_url": Field(
        "Campaign page",
        "URL of a campaign's page on the platform, with {mail_name} or {guid}; tasks link to it.",
    ),
    "access_token": Field("OAuth access token", "Sent when authentication is oauth.", secret=True, schema=_OAUTH),
    "client_id": Field("OAuth client id", "Client id of the OAuth application, to obtain a token.", schema=_OAUTH),
    "client_secret": Field(
        "OAuth client secret", "Client secret of the OAuth application, to obtain a token.", secret=True, schema=_OAUTH
    ),
    "redirect_uri": Field("OAuth redirect URI", "Exactly as registered for the OAuth application.", schema=_OAUTH),
    "oauth_obtained_at": Field("", "Time at which the login command stored the token."),
    "oauth_expires_at": Field("", "Time of expiry, stored by the login command; empty for a permanent token."),
    "service_tags": Field(
        "Tags of the service", "Tags that the service fills, separated by commas; messages need no values for them.",
        schema=_ADVANCED,
    ),
    "timeout": Field(
        "Timeout (s)", "Seconds to wait for a connection, and for each part of a response. Default: 30.",
        json_type="number", schema={"minimum": 1, "maximum": 3600, **_ADVANCED},
    ),
    "requests_per_second": Field(
        "Requests per second", "Maximum for each task. Default: no limit.",
        json_type="number", schema={"minimum": 0, **_ADVANCED},
    ),
    "rate_limit_conn_id": Field(
        "Rate limit connection", "Connection of a Redis in which all processes share the requests per second. "
        "Default: each task and triggerer keeps them by itself.", schema=_ADVANCED,
    ),
    "rate_limit_when_away": Field(
        "While Redis is away", "local: each process keeps the rate by itself; wait: send nothing. Default: local.",
        schema={"enum": ["local", "wait"], **_ADVANCED},
    ),
    "max_in_flight": Field(
        "Requests in flight", "Maximum number of concurrent requests of each task. Default: 16.",
        json_type="integer", schema={"minimum": 1, "maximum": 1000, **_ADVANCED},
    ),
    "max_campaigns_per_day": Field(
        "Campaigns per day", "Tasks create no more campaigns for one day (UTC). Default: no limit.",
        json_type="integer", schema={"minimum": 0, **_ADVANCED},
    ),
    "max_recipients_per_day": Field(
        "Recipients per day", "Tasks create no campaign with which a day (UTC) would have more. Default: no limit.",
        json_type="integer", schema={"minimum": 0, **_ADVANCED},
    ),
    "ca_bundle": Field(
        "CA bundle", "PEM file of certificates to trust in addition to the default ones.", schema=_ADVANCED
    ),
    "proxy": Field(
        "Proxy", "URL of an HTTP proxy, without a password. Default: that of the environment.", schema=_ADVANCED
    ),
}  # fmt: skip

TEST_CLOCK = "test_clock"
"""Declares a service for tests, such as the emulator, whose clock tests move. Not in the form: never for production."""

UI_FIELD_BEHAVIOUR: dict[str, Any] = {
    "hidden-fields": ["schema", "login"],
    "relabeling": {"host": "Base URL", "password": "API key"},
    "placeholders": {"host": "https://api.example.com", "port": "443"},
}


def _in_form() -> Iterator[tuple[str, Field]]:
    return ((name, item) for name, item in FIELDS.items() if item.label)


def conn_fields() -> dict[str, Any]:
    """Return the form for Airflow 3.2 and later (``conn-fields`` of the provider information)."""
    form = {}
    for name, item in _in_form():
        schema: dict[str, Any] = {"type": [item.json_type, "null"], **item.schema}
        if item.secret:
            schema["format"] = "password"
        form[name] = {"label": item.label, "description": item.description, "schema": schema}
    return form


def form_widgets() -> dict[str, Any]:
    """Return the form for Airflow 3.0 and 3.1 (``get_connection_form_widgets``).

    These versions reject a hook with other field types, so decimal numbers are string fields.
    """
    from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
    from flask_babel import lazy_gettext
    from wtforms import BooleanField, IntegerField, PasswordField, StringField
    from wtforms.validators import Optional as OptionalValue
    from wtforms.validators import any_of

    widgets = {}
    for name, item in _in_form():
        options: dict[str, Any] = {"description": item.description, "validators": [OptionalValue()]}
        if "enum" in item.schema:
            options["validators"].append(any_of(item.schema["enum"]))
        if item.json_type == "boolean":
            field_type = BooleanField
        elif item.secret:
            field_type, options["widget"] = PasswordField, BS3PasswordFieldWidget()
        else:
            field_type = IntegerField if item.json_type == "integer" else StringField
            options["widget"] = BS3TextFieldWidget()
        widgets[name] = field_type(lazy_gettext(item.label), **options)
    return widgets


def fields_of(connection: Connection) -> dict[str, Any]:
    """Return the fields of :data:`FIELDS` that are set, by name.

    A saved form has null for each untouched field and "" for an emptied one; both count as not set.

    :raises MailConfigError: when the connection has another type, or ``extra`` is not a JSON object or has an unknown
        field: a misspelled ``sandbox`` must not send real mail.
    """
    if connection.conn_type not in (CONN_TYPE, "", None):
        # Never send the password of another service.
        raise MailConfigError(
            f"connection {connection.conn_id!r}: conn_type is {connection.conn_type!r}, must be {CONN_TYPE!r}"
        )
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        extra = None
    prefix = f"connection {connection.conn_id!r}: extra"
    if not isinstance(extra, dict):
        raise MailConfigError(f"{prefix}: is not a JSON object")
    if unknown := extra.keys() - FIELDS.keys() - {TEST_CLOCK}:
        raise MailConfigError(f"{prefix}: unknown field {', '.join(sorted(unknown))}; known are {', '.join(FIELDS)}")
    return {name: value for name, value in extra.items() if value is not None and value != ""}


def client_config(connection: Connection, **overrides: Any) -> ClientConfig:
    """Return the client configuration of a connection.

    :raises MailConfigError: with the name of the connection and each missing or invalid field.
    """
    from airflow_provider_mail.api.config import ClientConfig

    fields = fields_of(connection)
    settings = {name: value for name, value in fields.items() if name in ClientConfig.model_fields}
    try:
        if template := fields.get("campaign_url"):
            placeholders_of(str(template))
        arguments = {"base_url": base_url(connection), "api_key": connection.password, **settings, **overrides}
        config = ClientConfig(**arguments)
        config.ssl_context()
    except MailConfigError as error:
        message = str(error)
        for name, label in {"base_url": "host (base URL)", "api_key": "password (API key)"}.items():
            message = message.replace(f"{name}:", f"{label}:")
        raise MailConfigError(f"connection {connection.conn_id!r}: {message}") from None
    return config


def redis_url(connection: Connection) -> str:
    """Return the URL of a connection of type ``redis``, as Airflow's own Redis hook reads it.

    :raises MailConfigError: it has another type, or no host.
    """
    if connection.conn_type != "redis" or not connection.host:
        raise MailConfigError(
            f"rate_limit_conn_id: connection {connection.conn_id!r} must have the type 'redis' and a host"
        )
    extra = json.loads(connection.extra or "{}")
    scheme = "rediss" if extra.get("ssl") else "redis"
    user, password = (quote(str(text or ""), safe="") for text in (connection.login, connection.password))
    credentials = f"{user}:{password}@" if user or password else ""
    return f"{scheme}://{credentials}{connection.host}:{connection.port or 6379}/{extra.get('db') or 0}"


def campaign_caps(connection: Connection) -> CampaignCaps:
    """Return the limits of a day.

    :raises MailConfigError: naming the field that is no whole number.
    """
    from airflow_provider_mail.api.flows.campaign_checks import CampaignCaps

    fields = fields_of(connection)
    limits = []
    for name in ("max_campaigns_per_day", "max_recipients_per_day"):
        text = str(fields.get(name, ""))
        if text and not text.isdecimal():
            raise MailConfigError(f"connection {connection.conn_id!r}: {name}: must be a whole number, at least 0")
        limits.append(int(text) if text else None)
    return CampaignCaps(*limits)


def rate_limit_account(connection: Connection) -> str | None:
    """Return what identifies the account after a renewal of its OAuth token; ``None`` if only the credential does."""
    fields = fields_of(connection)
    if fields.get("auth_type") != "oauth" or not fields.get("client_id"):
        return None
    return f"{fields['client_id']} {fields.get('team_name') or ''}"


RENEWAL_SECONDS = 300
"""With less time left, the service issues a new token; both are valid until the old one expires (specification, "OAuth
access token")."""


RENEW = "airflow mail oauth login --conn-id {} (before Airflow 3.2: python -m airflow_provider_mail oauth login ...)"
"""The command that renews a token, for a connection id."""


@dataclass(frozen=True, slots=True)
class TokenEnd:
    """When an access token ends.

    :param left: seconds until then; negative if it has ended.
    """

    time: datetime
    left: float

    @property
    def is_due(self) -> bool:
        """Whether the service issues a new one."""
        return self.left < RENEWAL_SECONDS


def token_end(fields: Mapping[str, Any]) -> TokenEnd | None:
    """Return when the token ends that the login command stored; ``None`` when it is permanent or that is unknown.

    :param fields: the fields of the connection; see :func:`fields_of`.
    :raises MailConfigError: when ``oauth_expires_at`` is not a time.
    """
    if not (text := fields.get("oauth_expires_at")):
        return None
    try:
        ends = datetime.fromisoformat(str(text))
    except ValueError:
        raise MailConfigError("oauth_expires_at: is not an ISO 8601 time") from None
    ends = ends.astimezone(UTC) if ends.tzinfo else ends.replace(tzinfo=UTC)
    return TokenEnd(ends, (ends - datetime.now(UTC)).total_seconds())


def token_expiry_warning(connection: Connection) -> str:
    """Return how to renew an access token that expires soon or has expired; empty for any other."""
    end = token_end(fields_of(connection))
    if end is None or not end.is_due:
        return ""
    state = f"expires in {end.left:.0f} s" if end.left > 0 else "has expired"
    return f"the OAuth access token {state}; renew it with: {RENEW.format(connection.conn_id)}"


PLACEHOLDERS = ("mail_name", "guid")
"""Names allowed in braces in ``campaign_url``."""


def campaign_url(template: str, **known: object) -> str:
    """Return the URL of a campaign's page on the platform.

    :param template: ``campaign_url`` of the connection.
    :return: the URL; empty when the template uses an unknown value.
    """
    texts = {name: quote(str(known.get(name) or ""), safe="") for name in placeholders_of(template)}
    return template.format(**texts) if all(texts.values()) else ""


def placeholders_of(template: str) -> set[str]:
    """Return the names of :data:`PLACEHOLDERS` in a ``campaign_url``.

    :param template: ``campaign_url`` of the connection.
    :raises MailConfigError: when it is not a valid template of a URL.
    """
    try:
        fields = [part[1:] for part in Formatter().parse(template) if part[1] is not None]
        url = urlsplit(template)
        # Placeholders only after the host, without format specifications.
        fits = all(name in PLACEHOLDERS and not form and not conversion for name, form, conversion in fields)
        fits &= url.scheme in ("http", "https") and bool(url.hostname) and not {"{", "@"} & set(url.netloc)
    except ValueError:
        fits = False
    if not fits or any(map(str.isspace, template)):
        raise MailConfigError(
            "campaign_url: must be a URL such as https://app.example.com/campaigns/{guid}; after the host it may have "
            f"{', '.join(f'{{{name}}}' for name in PLACEHOLDERS)} and nothing else in braces"
        )
    return {str(name) for name, _, _ in fields}


def base_url(connection: Connection) -> str:
    """Return the base URL: the host, with scheme and port when they are separate fields."""
    host = (connection.host or "").strip()
    if not host:
        return ""
    if "://" not in host:
        host = f"{connection.schema or 'https'}://{host}"
    scheme, _, remainder = host.partition("://")
    authority, slash, path = remainder.partition("/")
    with suppress(ValueError):
        authority = f"[{IPv6Address(authority)}]"
    default_port = {"https": 443, "http": 80}.get(scheme)
    if connection.port and connection.port != default_port and ":" not in authority.rpartition("]")[2]:
        authority = f"{authority}:{connection.port}"
    return f"{scheme}://{authority}{slash}{path}"
