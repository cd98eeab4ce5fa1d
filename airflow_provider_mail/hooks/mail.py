"""The hook: a client with the settings of an Airflow connection.

Every operation of the service is a request class in :mod:`airflow_provider_mail.api`; ``hook.send(request)`` performs
it and returns a typed response. An operation of several requests is a function whose first
argument is the client, such as ``find_list(hook.get_conn(), name)``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_mail.api.errors import MailConfigError, MailError, clear_traceback_frames
from airflow_provider_mail.hooks.connection import (
    CONN_TYPE,
    FIELDS,
    HOOK_NAME,
    TEST_CLOCK,
    UI_FIELD_BEHAVIOUR,
    campaign_caps,
    client_config,
    fields_of,
    form_widgets,
    rate_limit_account,
    redis_url,
    token_expiry_warning,
)
from airflow_provider_mail.version_compat import ASKING, BaseHook, mask_secret

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_mail.api._core.requests import MailRequest, MailResponse
    from airflow_provider_mail.api.campaigns import Campaign
    from airflow_provider_mail.api.client import AsyncMailClient, BeforeRequest, MailClient, OnRequest, RequestAttempt
    from airflow_provider_mail.api.config import ClientConfig
    from airflow_provider_mail.api.contacts import Contact
    from airflow_provider_mail.api.flows.campaign_checks import CampaignCaps
    from airflow_provider_mail.api.flows.import_contacts import ImportPlan, Progress
    from airflow_provider_mail.api.flows.validate_rows import Reject, Row

__all__ = ["MailHook"]

R = TypeVar("R", bound="MailResponse")

TEST_SECONDS = 10.0
"""Maximum timeout of :meth:`MailHook.test_connection`; the user waits for the result of the test button."""


@dataclass(frozen=True, slots=True)
class _ConnectionHolder:
    """Holds a connection, so that displaying the hook's attributes does not show its secrets."""

    connection: Connection = field(repr=False)


class MailHook(BaseHook):
    """Call the email service with the settings of an Airflow connection.

    The client is created at first use and kept: one hook has one pool of HTTP connections. It can be used by many
    threads.

    :param mail_conn_id: the connection, of type ``mail``; read at first use. Default: ``mail_default``.
    :param logger_name: the name of the hook's logger. Default: derived from the class.
    """

    conn_name_attr = "mail_conn_id"
    default_conn_name = "mail_default"
    conn_type = CONN_TYPE
    hook_name = HOOK_NAME

    _before_request: BeforeRequest | None = None
    """What tasks check before each request of their hook."""

    def __init__(self, mail_conn_id: str = default_conn_name, *, logger_name: str | None = None) -> None:
        super().__init__(logger_name=logger_name)
        self.mail_conn_id = mail_conn_id

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the connection form's own fields, for Airflow 3.0 and 3.1."""
        return form_widgets()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return the behavior of the connection form's standard fields, for Airflow 3.0 and 3.1."""
        return {name.replace("-", "_"): value for name, value in UI_FIELD_BEHAVIOUR.items()}

    @property
    def _connection(self) -> Connection:
        return self._holder.connection

    @cached_property
    def _holder(self) -> _ConnectionHolder:
        return _ConnectionHolder(self._read_connection())

    def _read_connection(self) -> Connection:
        connection = self.get_connection(self.mail_conn_id)
        fields = fields_of(connection)
        for secret in (connection.password, *(fields.get(name) for name in FIELDS if FIELDS[name].secret)):
            if secret:
                mask_secret(secret)
        return connection

    def _field(self, name: str) -> Any:
        with clear_traceback_frames():
            return fields_of(self._connection).get(name)

    @cached_property
    def team_name(self) -> str | None:
        """The team to which the connection's key belongs, according to the connection."""
        name = self._field("team_name")
        return None if name is None else str(name)

    @cached_property
    def has_test_clock(self) -> bool:
        """Whether the connection declares a service whose clock tests move."""
        return self._field(TEST_CLOCK) is True

    @cached_property
    def campaign_url_template(self) -> str:
        """The connection's ``campaign_url``; empty if it has none."""
        return str(self._field("campaign_url") or "")

    @cached_property
    def service_tags(self) -> frozenset[str]:
        """The tags that the service fills, according to the connection."""
        from airflow_provider_mail.api._core.fields import tag_names

        with clear_traceback_frames():
            return tag_names(self._field("service_tags"))

    @cached_property
    def caps(self) -> CampaignCaps:
        """The limits of campaigns and recipients of a day, according to the connection."""
        with clear_traceback_frames():
            return campaign_caps(self._connection)

    @cached_property
    def config(self) -> ClientConfig:
        """The connection's settings. Do not read them inside an event loop: use :meth:`get_async_conn` there.

        :raises MailConfigError: naming the connection and its missing or invalid fields.
        """
        from airflow_provider_mail.api.config import clear_text_warning

        with clear_traceback_frames():
            settings: dict[str, Any] = {}
            if conn_id := fields_of(self._connection).get("rate_limit_conn_id"):
                settings["rate_limit_url"] = redis_url(self.get_connection(str(conn_id)))
                # The OAuth client stays the same when its token is renewed.
                settings["rate_limit_account"] = rate_limit_account(self._connection)
            config = client_config(self._connection, **settings)
        if config.auth_type == "oauth" and (ending := token_expiry_warning(self._connection)):
            self.log.warning("connection %r: %s", self.mail_conn_id, ending)
        if warning := clear_text_warning(config):
            self.log.warning("connection %r: %s", self.mail_conn_id, warning)
        return config

    @cached_property
    def _client(self) -> MailClient:
        from airflow_provider_mail.api.client import MailClient

        return MailClient(
            self.config, on_request=self._on_request(), before_request=self._before_request, renew=self._latest_config
        )

    def _latest_config(self) -> ClientConfig | None:
        """Read the connection again, after a 401; ``None`` if it cannot be read."""
        try:
            with ASKING:
                return client_config(self._read_connection())
        except Exception as error:
            self.log.warning("connection %r could not be read again: %s", self.mail_conn_id, type(error).__name__)
            return None

    def get_conn(self) -> MailClient:
        """Return the client of this hook; :meth:`close` closes it."""
        return self._client

    async def get_async_conn(self) -> AsyncMailClient:
        """Return a new client for the running event loop; the caller closes it."""
        # Airflow reads the connection and masks its secrets through a channel that cannot be used synchronously inside
        # the loop. It can be used from asgiref's threads; on Airflow 3.0 and 3.1 only from those. In these versions,
        # the next call reads the response to a cancelled call, which ends the triggerer. So the call is never
        # cancelled.
        from asgiref.sync import sync_to_async

        from airflow_provider_mail.api.client import AsyncMailClient

        settings = sync_to_async(lambda: (self.config, self._on_request()))()
        config, on_request = await asyncio.shield(settings)
        return AsyncMailClient(config, on_request=on_request, before_request=self._before_request)

    def _on_request(self) -> OnRequest | None:
        """Return what is called before each request: what counts it, if Airflow sends metrics."""
        from airflow_provider_mail._metrics import prepare

        return self._count_request if prepare() else None

    def _count_request(self, request: RequestAttempt) -> None:
        from airflow_provider_mail._metrics import REQUESTS, RETRIES, THROTTLED, emit

        operation = request.operation.strip("/").replace("/", ".")
        counts = {REQUESTS: 1, RETRIES: int(request.repeated), THROTTLED: round(request.throttled * 1000)}
        emit(counts, {"mail_conn_id": self.mail_conn_id, "operation": operation})

    def close(self) -> None:
        """Close the client's connections. The next request reads the connection again, such as a rotated key."""
        client = self.__dict__.pop("_client", None)
        if client is not None:
            client.close()
        for name in [name for name in vars(self) if isinstance(getattr(MailHook, name, None), cached_property)]:
            del self.__dict__[name]

    def send(self, request: MailRequest[R]) -> R:
        """Perform one operation of the service.

        :param request: an instance of a request class in :mod:`airflow_provider_mail.api`.
        :return: the response, of the type that the request class declares.
        :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
        """
        return self._client.send(request)

    def find_campaign(self, mail_name: str) -> Campaign | None:
        """Look up a campaign by its exact name; the service's own filter finds names that contain the text.

        :param mail_name: the exact name.
        :return: the campaign, or ``None`` if there is none.
        :raises MailError: see :mod:`airflow_provider_mail.api.errors`.
        """
        from airflow_provider_mail.api.campaigns import find_campaign

        return find_campaign(self._client, mail_name)

    def iter_contacts(
        self, list_name: str, *, page_size: int = 1000, team_name: str | None = None
    ) -> Iterator[Contact]:
        """Iterate over the contacts of a list, page by page, in constant memory.

        :param list_name: the name of the list.
        :param page_size: contacts in a page, at most 1,000. Default: 1,000.
        :param team_name: the team that owns the list. Default: the current team.
        :raises MailIncompleteError: after the last contact, if some are missing.
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
        """Import any number of contacts in constant memory.

        :param batches: the rows, in lists; each list becomes one request, so it should hold ``plan.chunk_size`` rows.
        :param plan: the properties of the rows, the target list, and the number of rows per request.
        :param on_reject: called with each row that is not imported, from this thread.
        :param on_progress: called with the current counts after responses, from this thread. Default: not called.
        :param progress: the counts to update, so that you have them when an error ends the import. Default: new counts.
        :return: the counts.
        :raises MailError: see :mod:`airflow_provider_mail.api.errors`; rows that were accepted before stay imported.
        """
        from airflow_provider_mail.api.flows.import_contacts import import_contacts

        return import_contacts(
            self._client, batches, plan, on_reject=on_reject, on_progress=on_progress, progress=progress
        )

    def test_connection(self) -> tuple[bool, str]:
        """Make one read-only request; return whether it succeeded, and a message that names the setting to fix."""
        from airflow_provider_mail.api.client import MailClient
        from airflow_provider_mail.api.config import RetrySettings, clear_text_warning, credential_of, explain
        from airflow_provider_mail.api.lists import GetLists

        try:
            config = self.config
        except MailConfigError as error:
            # The test button uses a temporary connection id, which would only confuse.
            return False, str(error).removeprefix(f"connection {self.mail_conn_id!r}: ")
        limits = {"retry": RetrySettings(attempts=1, total_seconds=0), "timeout": min(config.timeout, TEST_SECONDS)}
        once = config.model_copy(update=limits)
        try:
            with MailClient(once) as client:
                lists = client.send(GetLists(page_size=1)).total_records or 0
        except MailError as error:
            return False, explain(error, once)
        sentences = [f"{config.base_url} accepts the {credential_of(config)}; contact lists there: {lists}."]
        if config.sandbox:
            sentences.append("The connection is in sandbox mode: no mail is sent and nothing is changed.")
        if warning := clear_text_warning(config):
            sentences.append(f"Warning: {warning}.")
        return True, " ".join(sentences)
