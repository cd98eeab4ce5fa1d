"""Contacts: import many, save one, delete one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, Unpack

from airflow_provider_mail._task.checks import RedactedField, unwrap
from airflow_provider_mail._task.mixin import OnEmpty, Templated
from airflow_provider_mail._task.rules import given_rows, text
from airflow_provider_mail.operators._base import BaseMailOperator, BaseNamedOperator
from airflow_provider_mail.operators._contact_import import (
    PROPERTIES,
    BaseContactImportOperator,
    UpdateMode,
)
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail._task.import_rows import Source
    from airflow_provider_mail.api._core.requests import Client
    from airflow_provider_mail.api.contacts import DeleteContact
    from airflow_provider_mail.arguments import Brakes, ChangesOnly, Consent, Rejects, Suppress

__all__ = ["MailDeleteContactOperator", "MailImportContactsOperator", "MailUpsertContactOperator"]

Rows: TypeAlias = Iterable[Mapping[str, Any] | Sequence[Any]]


class MailImportContactsOperator(BaseContactImportOperator):
    """Import contacts that another task returned, or that a function yields.

    Rows stream through checks into several concurrent requests, in constant memory. Invalid rows are rejected with row
    number, field and reason; all others are imported, and then the task fails if too many were rejected. A retried task
    does not send rows again that were accepted in earlier tries (Airflow 3.3).

    Returns ``list_name``, ``read``, ``accepted`` (over all tries), ``accepted_earlier`` (those among them that this
    try did not send), ``rejected``, ``opted_out``, ``without_address``, ``requests`` (of this try),
    ``requests_with_message`` (those that the service accepted with a message, which is logged as a warning),
    ``sandbox``, ``send_list_names`` and ``repel_list_names`` (for a campaign), ``suppressed``, with
    ``changes_only`` also ``joined``, ``changed``, ``left`` and ``size``, and with rejected rows ``rejects_path``
    and ``rejects_table``, where they are kept; never rows or addresses.

    .. seealso:: the guide :ref:`howto/operator:MailImportContactsOperator`
        (in the package: ``airflow_provider_mail/docs/contacts.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param list_name: the list that the contacts are added to; created when missing. Default: none. (templated)
    :param list_description: the description with which the list is created. Default: none. (templated)
    :param contacts: rows: dictionaries, or lists in the order of ``column_names``; or a function without arguments that
        returns or yields them. XCom is for small sets: for large ones use ``SqlToMailContactsOperator``. Airflow
        neither stores nor shows them. (templated)
    :param column_names: the names of the values; required when rows are lists. Default: none. (templated)
    :param columns: the property that each column is sent as, such as ``{"mail_address": "email"}``. Columns left out
        are not sent. Default: columns named like ``email``, ``name`` and ``phone_number``; any other column fails the
        task. (templated)
    :param update_mode: ``create_and_update``, ``create_only`` or ``update_only``. Default: ``create_and_update``.
        (templated)
    :param chunk_size: rows in one request. Default: 5,000.
    :param max_in_flight: the maximum number of concurrent requests; the connection's own limit also applies. Default:
        16.
    :param null_value: the text that is sent for a missing value. Default: ``null``, whose effect on a contact the
        specification does not describe. (templated)
    :param consent: which people want mail, by columns of the source, see
        :class:`~airflow_provider_mail.arguments.Consent`; a list of several, or an empty one for everybody. Default: a
        column that looks like a consent fails the task with ``exact_audience``, and is a warning otherwise.
    :param rejects: how many rows may be rejected, and where they are kept, see
        :class:`~airflow_provider_mail.arguments.Rejects`. Default: none may, and none is kept. (templated)
    :param on_empty: what to do when there is no row: ``error`` fails the task, ``skip`` skips it, ``continue`` returns
        zeros. Default: ``error``.
    :param sandbox_mode: let the service check the requests and change nothing. Default: false.
    :param exact_audience: let campaigns reach exactly the people whom the source returned and the service accepted.
        For that, every try fills a list of its own, whose name begins with ``list_name``: give the result to
        ``MailCreateCampaignOperator`` as ``audience``. Default: the contacts are added to ``list_name``, and campaigns
        reach everybody on it.
    :param keep_lists: the number of runs whose lists ``exact_audience`` keeps, this one included. Older ones are
        deleted an hour or more after they were made, unless a campaign that is not finished names them. Default: 2.
    :param limit: the number of rows to read from the source, to try something out. Default: all.
    :param suppress: whom to leave out, see :class:`~airflow_provider_mail.arguments.Suppress`. Default: nobody.
        (templated)
    :param dry_run: read and check the rows, log counts and masked examples, and send nothing. Default: false.
    :param changes_only: send only rows that are new or whose mapped values changed since the service accepted them, see
        :class:`~airflow_provider_mail.arguments.ChangesOnly`. Default: all rows. (templated)
    :param brakes: what stops the import before its first request, see
        :class:`~airflow_provider_mail.arguments.Brakes`. Default: nothing.
    """

    contacts = RedactedField()
    column_names: Sequence[str] | None

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        list_name: Templated[str] | None = None,
        list_description: Templated[str] | None = None,
        contacts: Templated[Rows | Callable[[], Rows]],
        column_names: Templated[Sequence[Templated[str]]] | None = None,
        columns: Templated[Mapping[str, str]] | None = None,
        update_mode: Templated[UpdateMode] = "create_and_update",
        chunk_size: int = 5000,
        max_in_flight: int = 16,
        null_value: Templated[str] | None = None,
        consent: Consent | Sequence[Consent] | None = None,
        rejects: Templated[Rejects] | None = None,
        on_empty: OnEmpty = "error",
        sandbox_mode: bool = False,
        exact_audience: bool = False,
        keep_lists: int = 2,
        limit: int | None = None,
        suppress: Templated[Suppress] | None = None,
        dry_run: bool = False,
        changes_only: Templated[ChangesOnly] | None = None,
        brakes: Brakes | None = None,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    @contextmanager
    def source(self) -> Iterator[Source]:
        from airflow_provider_mail._task.import_rows import Source
        from airflow_provider_mail.warehouse.rows import batched

        contacts: Rows = given_rows("contacts", unwrap(self.contacts))
        rows = iter(contacts)
        first = next(rows, None)
        if first is None:
            yield Source(self.column_names or list(self.columns or PROPERTIES.values()), iter(()), 0)
            return
        names = self._names(first)
        values = _values if isinstance(first, Mapping) else _lists
        total = len(contacts) if isinstance(contacts, Sized) else None
        in_order = values(chain([first], rows), names, self.columns is None)
        all_names = list(first) if isinstance(first, Mapping) else ()
        yield Source(names, batched(in_order, self.chunk_size), total, all_names)

    def _names(self, first: Mapping[str, Any] | Sequence[Any]) -> list[str]:
        if isinstance(first, Mapping):
            return list(first if self.columns is None else dict.fromkeys([*self.columns, *self._unsent_columns()]))
        if self.column_names is None:
            raise AirflowFailException("column_names: needed when contacts are lists and not dictionaries")
        return list(self.column_names)


def _values(rows: Iterable[Any], names: Sequence[str], all_named: bool) -> Iterator[tuple[Any, ...]]:
    """Yield the values of dictionaries in the order of the names; a row may lack some of them."""
    known = set(names)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise _mixed(number, row)
        if all_named and not known.issuperset(row):
            new = ", ".join(repr(name) for name in row if name not in known)
            raise AirflowFailException(
                f"contacts: row {number} has {new}, the first row has not. Say what is imported with "
                'columns={"<key>": "<property>"}; keys left out there are not sent'
            )
        yield tuple(row.get(name) for name in names)


def _lists(rows: Iterable[Any], names: Sequence[str], all_named: bool) -> Iterator[Sequence[Any]]:
    for number, row in enumerate(rows, 1):
        if isinstance(row, str | bytes | Mapping) or not isinstance(row, Sequence):
            raise _mixed(number, row)
        yield row


def _mixed(number: int, row: Any) -> AirflowFailException:
    return AirflowFailException(
        f"contacts: rows must be all dictionaries or all lists; row {number} is of type {type(row).__name__}"
    )


class MailUpsertContactOperator(BaseMailOperator):
    """Create or update one contact. For many, ``MailImportContactsOperator`` takes thousands in one request.

    Airflow neither stores nor shows the contact.

    Returns ``sandbox``.

    .. seealso:: the guide :ref:`howto/operator:MailUpsertContactOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param contact_email: the address, which is sent in the spelling of imports; ``contact_email`` or ``phone_number``
        is required. (``email`` is Airflow's own argument: the recipient of alerts about the task.) (templated)
    :param phone_number: the phone number. Default: none. (templated)
    :param name: the name. Default: none, the service takes the address. (templated)
    :param list_name: an existing list, to which the contact is added. Default: none. (templated)
    :param sandbox_mode: let the service check the request and change nothing. Default: false.
    """

    own_rules: ClassVar = {"contact_email": text("Address")}
    contact_email = RedactedField()
    phone_number = RedactedField()
    name = RedactedField()

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        contact_email: Templated[str] | None = None,
        phone_number: Templated[str] | None = None,
        name: Templated[str] | None = None,
        list_name: Templated[str] | None = None,
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())
        if contact_email is None and phone_number is None:
            raise self.argument_error(
                "contact_email or phone_number is required (email is Airflow's: where alerts are sent)"
            )

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_mail.api._core.fields import address_key
        from airflow_provider_mail.api.contacts import UpsertContact

        with self.mail_errors():
            fields = self.request_fields(UpsertContact) | {"email": unwrap(self.contact_email)}
            # The template of a missing value renders as empty text.
            request = UpsertContact(**{name: value or None for name, value in fields.items()})
            if request.email is not None:
                # As an import sends it: where the service tells spellings apart, another one is another contact.
                request = request.model_copy(update={"email": address_key(request.email)})
            self.hook.send(request)
            sandbox = self.sandbox_mode or self.hook.config.sandbox
        self.log.info("Sandbox: the contact would be saved." if sandbox else "The contact was saved.")
        return {"sandbox": sandbox}


class MailDeleteContactOperator(BaseNamedOperator):
    """Delete a contact permanently and return a receipt, for instance for an erasure request.

    With ``sql_conn_id``, the person is also taken out of the states of audiences, so that no later run sends the
    address again, unless its source returns it.

    Returns ``deleted``, ``gone`` (whether lookups afterwards do not find the address), ``spellings`` (in how many
    spellings it was deleted and looked up), ``audiences`` (those that have forgotten the person), ``deleted_at`` (ISO
    8601, UTC), ``reference`` and ``sandbox``; never the address.

    .. seealso:: the guide :ref:`howto/operator:MailDeleteContactOperator`
        (in the package: ``airflow_provider_mail/docs/resources.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param contact_email: the address. It is deleted as given, in small letters as imports send it, and a domain that is
        not ASCII in both of its forms; where the service tells spellings apart, others stay. (``email`` is Airflow's
        own argument: the recipient of alerts about the task.) (templated)
    :param sql_conn_id: the connection of the database with the states of audiences. Default: none. (templated)
    :param audiences_table: the table of audiences there. Default: ``mail_audiences``. (templated)
    :param reference: a text that is returned with the receipt, such as the number of the request. Default: none.
        (templated)
    :param ignore_if_missing: succeed when there is no such contact, as in a second try after a success. If false, the
        task fails. Default: true.
    :param sandbox_mode: let the service check the request and change nothing. Default: false.
    """

    thing = "contact"
    identified_by = ()
    done = "deleted"
    contact_email = RedactedField()
    sql_conn_id: str | None
    audiences_table: str
    reference: str | None
    ignore_if_missing: bool

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        contact_email: Templated[str],
        sql_conn_id: Templated[str] | None = None,
        audiences_table: Templated[str] = "mail_audiences",
        reference: Templated[str] | None = None,
        ignore_if_missing: bool = True,
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def _deletions(self) -> list[DeleteContact]:
        # A lookup finds one spelling, and a person may have been imported with several.
        from airflow_provider_mail.api._core.fields import spellings
        from airflow_provider_mail.api.contacts import DeleteContact

        request = self.build_request(DeleteContact, email=unwrap(self.contact_email))
        return [request.model_copy(update={"email": email}) for email in spellings(request.email)]

    def change(self, client: Client) -> bool:
        from airflow_provider_mail.api.flows.create_once import delete

        existed = False
        requests = self._deletions()
        for request in requests:
            missing_ok = self.ignore_if_missing or existed or request is not requests[-1]
            existed = delete(client, request, missing_ok=missing_ok) or existed
        return existed

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the contact, verify that the service no longer knows it, and let the audiences forget the person."""
        result = super().execute(context)
        with self.mail_errors():
            deletions = self._deletions()
            gone = not any(request.exists(self.hook.get_conn()) for request in deletions)
            audiences = [] if result["sandbox"] else self._forget(deletions[0].email)
        if not gone and not result["sandbox"]:
            raise AirflowException("the service reports that the contact is deleted, and still returns it")
        deleted_at = datetime.now(UTC).replace(microsecond=0).isoformat()
        receipt = {
            "spellings": len(deletions),
            "audiences": audiences,
            "deleted_at": deleted_at,
            "reference": self.reference,
        }
        return {**result, "gone": gone, **receipt}

    def _forget(self, email: str) -> list[str]:
        """Take the person out of the audiences; return which have forgotten it.

        :raises AirflowException: an audience has not; the next try asks again.
        """
        if self.sql_conn_id is None:
            return []
        from airflow_provider_mail._audience.people import forget, not_forgotten
        from airflow_provider_mail._audience.store import StateStore
        from airflow_provider_mail._task.storage import sql_hook

        results = forget(StateStore(sql_hook(self.sql_conn_id), self.audiences_table), email)
        if kept := not_forgotten(results):
            reasons = "; ".join(f"{audience}: {result}" for audience, result in kept.items())
            raise AirflowException(f"the contact was deleted, but not everywhere: {reasons}")
        return sorted(results)
