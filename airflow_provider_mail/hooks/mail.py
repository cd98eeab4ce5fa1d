"""The hook: a connection becomes a client.

Every operation of the document is a request class in :mod:`airflow_provider_mail.api`, and ``hook.send(request)``
carries it out, typed. What needs more than one request has a method of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.api.errors import clear_traceback_frames
from airflow_provider_mail.hooks.connection import (
    CONN_TYPE,
    FIELDS,
    HOOK_NAME,
    UI_FIELD_BEHAVIOUR,
    client_config,
    fields_of,
    form_widgets,
    token_expiry_warning,
)
from airflow_provider_mail.version_compat import BaseHook

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_mail.api._core.requests import Flow, MailRequest, MailResponse
    from airflow_provider_mail.api.campaigns import Campaign
    from airflow_provider_mail.api.client import AsyncMailClient, MailClient
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.contacts import Contact
    from airflow_provider_mail.api.flows.import_contacts import ImportPlan, Progress
    from airflow_provider_mail.api.flows.validate_rows import Reject, Row

R = TypeVar("R", bound="MailResponse")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept:
    """Holds a connection, and does not show its secrets where the hook's attributes are shown."""

    connection: Connection = field(repr=False)


class MailHook(BaseHook):
    """Talks to the email service with the settings of an Airflow connection.

    The client is made at first use and kept: one hook, one pool of HTTP connections. It may serve many threads.

    :param mail_conn_id: the connection, of type ``mail``.
    """

    conn_name_attr = "mail_conn_id"
    default_conn_name = "mail_default"
    conn_type = CONN_TYPE
    hook_name = HOOK_NAME

    def __init__(self, mail_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mail_conn_id = mail_conn_id

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """The form's own fields, on Airflow 3.0 and 3.1."""
        return form_widgets()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """The form's standard fields, on Airflow 3.0 and 3.1."""
        return {name.replace("-", "_"): value for name, value in UI_FIELD_BEHAVIOUR.items()}

    @property
    def _connection(self) -> Connection:
        return self._kept.connection

    @cached_property
    def _kept(self) -> _Kept:
        from airflow_provider_mail.version_compat import mask_secret

        connection = self.get_connection(self.mail_conn_id)
        fields = fields_of(connection)
        for secret in (connection.password, *(fields.get(name) for name in FIELDS if FIELDS[name].secret)):
            if secret:
                mask_secret(secret)
        return _Kept(connection)

    @cached_property
    def team_name(self) -> str | None:
        """The team that the connection says its key belongs to."""
        with clear_traceback_frames():
            name = fields_of(self._connection).get("team_name")
        return None if name is None else str(name)

    @cached_property
    def campaign_url_template(self) -> str:
        """The connection's ``campaign_url``; empty where there is none."""
        with clear_traceback_frames():
            return str(fields_of(self._connection).get("campaign_url") or "")

    @cached_property
    def config(self) -> ClientConfig:
        """The connection's settings. Not to be read inside an event loop: use :meth:`get_async_conn` there.

        :raises MailConfigError: naming the connection and its fields that are missing or wrong.
        """
        from airflow_provider_mail.api._core.advice import clear_text_warning

        with clear_traceback_frames():
            config = client_config(self._connection)
        if config.auth_type == "oauth" and (ending := token_expiry_warning(self._connection)):
            self.log.warning("connection %r: %s", self.mail_conn_id, ending)
        if warning := clear_text_warning(config):
            self.log.warning("connection %r: %s", self.mail_conn_id, warning)
        return config

    @cached_property
    def _client(self) -> MailClient:
        from airflow_provider_mail.api.client import MailClient

        return MailClient(self.config)

    def get_conn(self) -> MailClient:
        """The client of this hook; :meth:`close` closes it."""
        return self._client

    async def get_async_conn(self) -> AsyncMailClient:
        """A new client for the running event loop; the caller closes it."""
        # The connection comes, and its secrets are masked, through a channel that may neither be waited for nor used
        # synchronously inside the loop; asgiref's threads, and on Airflow 3.0 and 3.1 only those, find the way back.
        from asgiref.sync import sync_to_async

        from airflow_provider_mail.api.client import AsyncMailClient

        return AsyncMailClient(await sync_to_async(lambda: self.config)())

    def close(self) -> None:
        """Close the client's connections."""
        client = self.__dict__.pop("_client", None)
        if client is not None:
            client.close()

    def send(self, request: MailRequest[R]) -> R:
        """Carry out one operation of the document.

        :param request: an object of one of the request classes in :mod:`airflow_provider_mail.api`.
        :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
        """
        return self._client.send(request)

    def run(self, flow: Flow[T]) -> T:
        """Carry out several requests that belong together, such as ``find_list(name)``."""
        return self._client.run(flow)

    def find_campaign(self, mail_name: str) -> Campaign | None:
        """The campaign of exactly that name (the service's own filter means "contains")."""
        from airflow_provider_mail.api.campaigns import find_campaign

        return self.run(find_campaign(mail_name))

    def iter_contacts(
        self, list_name: str, *, page_size: int = 1000, team_name: str | None = None
    ) -> Iterator[Contact]:
        """The contacts of a list, page by page in flat memory.

        :raises MailIncompleteError: after the last one, when some are missing.
        """
        from airflow_provider_mail.api.contacts import GetListContacts

        request = GetListContacts(list_name=list_name, page_size=page_size, team_name=team_name)
        for page in self._client.pages(request):
            yield from page

    def import_contacts(
        self,
        batches: Iterable[Sequence[Row]],
        plan: ImportPlan,
        *,
        on_reject: Callable[[Reject], None],
        on_progress: Callable[[Progress], None] = lambda progress: None,
        progress: Progress | None = None,
    ) -> Progress:
        """Import any number of contacts in flat memory; see
        :func:`airflow_provider_mail.api.flows.import_contacts.import_contacts`.
        """
        from airflow_provider_mail.api.flows.import_contacts import import_contacts

        return import_contacts(
            self._client, batches, plan, on_reject=on_reject, on_progress=on_progress, progress=progress
        )

    def test_connection(self) -> tuple[bool, str]:
        """Make one request that changes nothing, and say in words what is wrong and where to mend it."""
        from airflow_provider_mail.api.errors import MailConfigError
        from airflow_provider_mail.hooks.connection_check import check

        try:
            return check(self.config)
        except MailConfigError as error:
            # The button tests under an id made up for the occasion, which would only confuse.
            return False, str(error).removeprefix(f"connection {self.mail_conn_id!r}: ")
