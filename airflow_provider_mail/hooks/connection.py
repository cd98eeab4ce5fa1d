"""The connection type ``mail``: its fields, declared once, and how a connection becomes a client's settings.

Airflow 3.2 and later build the form from :func:`conn_fields` without importing the hook; 3.0 and 3.1 ask the hook for
widgets. Both come from :data:`FIELDS`. Imported by ``get_provider_info``, so by every Airflow command: keep it light.
"""

from __future__ import annotations

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
    :param schema: further JSON schema.
    """

    label: str
    description: str
    kind: str = "string"
    secret: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)


FIELDS: dict[str, Field] = {
    "auth_type": Field(
        "Authentication",
        "api_key sends the API key above; oauth sends the access token below. Default: api_key.",
        schema={"enum": ["api_key", "oauth"]},
    ),
    "access_token": Field("OAuth access token", "Needed when authentication is oauth.", secret=True),
    "client_id": Field("OAuth client id", "Of the OAuth application; needed to obtain a token."),
    "client_secret": Field("OAuth client secret", "Of the OAuth application; needed to obtain a token.", secret=True),
    "redirect_uri": Field("OAuth redirect URI", "Exactly as registered on the platform."),
    "team_name": Field("Team", "Name of the team that the key belongs to; kept beside the statistics."),
    "sandbox": Field(
        "Sandbox",
        "The service checks every write and changes nothing; writes that have no sandbox mode are refused.",
        kind="boolean",
    ),
    "timeout": Field(
        "Time-out (s)", "Seconds to wait for a connection or for an answer to go on. Default: 30.",
        kind="number", schema={"minimum": 1, "maximum": 3600},
    ),
    "requests_per_second": Field(
        "Requests per second", "At most, for each client. Default: no limit.", kind="number", schema={"minimum": 0}
    ),
    "max_in_flight": Field(
        "Requests in flight", "Most requests under way at once, for each client. Default: 16.",
        kind="integer", schema={"minimum": 1, "maximum": 1000},
    ),
    "ca_bundle": Field("CA bundle", "File or folder of certificates to trust besides the usual ones."),
    "proxy": Field("Proxy", "URL of an HTTP proxy. Default: what the environment says."),
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
    """The form for Airflow 3.0 and 3.1 (``get_connection_form_widgets``)."""
    from flask_appbuilder.fieldwidgets import BS3PasswordFieldWidget, BS3TextFieldWidget
    from flask_babel import lazy_gettext
    from wtforms import BooleanField, FloatField, IntegerField, PasswordField, StringField
    from wtforms.validators import Optional as MayBeEmpty

    kinds = {"boolean": BooleanField, "integer": IntegerField, "number": FloatField, "string": StringField}
    widgets = {}
    for name, item in FIELDS.items():
        options: dict[str, Any] = {"description": item.description, "validators": [MayBeEmpty()]}
        if item.kind != "boolean":
            options["widget"] = BS3PasswordFieldWidget() if item.secret else BS3TextFieldWidget()
        kind = PasswordField if item.secret else kinds[item.kind]
        widgets[name] = kind(lazy_gettext(item.label), **options)
    return widgets


class ConnectionLike(Protocol):
    """What is read of an Airflow connection."""

    conn_id: str
    host: str | None
    port: int | None
    schema: str | None
    password: str | None

    @property
    def extra_dejson(self) -> dict[str, Any]: ...


def client_config(connection: ConnectionLike) -> ClientConfig:
    """The settings of a client for a connection.

    :raises MailConfigError: naming the connection and each of its fields that is missing or wrong.
    """
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.errors import MailConfigError

    # A form that was saved holds null for every field that nobody touched, and an emptied one holds "".
    extra = {
        name: value for name, value in connection.extra_dejson.items() if name in FIELDS and value not in (None, "")
    }
    settings = {
        "api_key": connection.password or None,
        **{name: value for name, value in extra.items() if name in ClientConfig.model_fields},
    }
    try:
        return ClientConfig(base_url=base_url(connection), **settings)
    except MailConfigError as error:
        words = str(error)
        for ours, theirs in {"base_url": "host (base URL)", "api_key": "password (API key)"}.items():
            words = words.replace(f"{ours}:", f"{theirs}:")
        raise MailConfigError(f"connection {connection.conn_id!r}: {words}") from None


def base_url(connection: ConnectionLike) -> str:
    """The service's address: the host, with scheme and port where they are given apart from it."""
    host = (connection.host or "").strip().rstrip("/")
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
