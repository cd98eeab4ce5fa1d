"""Contacts: import those that a DAG has at hand, save one, delete one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, check_flags
from airflow_provider_mail._task.redacted_field import HiddenField, unwrap
from airflow_provider_mail.operators._contact_import import PROPERTIES, BaseContactImportOperator, Source
from airflow_provider_mail.operators._named import BaseDeleteOperator
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

    from airflow_provider_mail.api.contacts import DeleteContact

Rows: TypeAlias = "Iterable[Mapping[str, Any] | Sequence[Any]]"


class MailImportContactsOperator(BaseContactImportOperator):
    """Imports contacts that another task returned, or that a function yields.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/contacts.md``.

    :param contacts: rows: dictionaries, or lists in the order of ``column_names``; or a function without arguments that
        returns or yields them. XCom is for small sets: take ``SqlToMailContactsOperator`` for large ones.
    :param column_names: names of the values, when rows are lists.
    """

    template_fields: Sequence[str] = (*BaseContactImportOperator.template_fields, "contacts", "column_names")
    contacts = HiddenField()

    def __init__(
        self,
        *,
        contacts: Rows | Callable[[], Rows] | XComArg,
        column_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.contacts = contacts
        self.column_names = column_names

    @contextmanager
    def source(self, context: Context) -> Iterator[Source]:
        """The rows, told apart from their names."""
        from itertools import chain

        from airflow_provider_mail.api.flows.import_contacts import batches

        contacts = self._rows(context)
        rows = iter(contacts)
        first = next(rows, None)
        if first is None:
            yield Source(self.column_names or list(self.columns or PROPERTIES.values()), iter(()), 0)
            return
        names, values = self._names(first), _values if isinstance(first, Mapping) else _lists
        total = len(contacts) if isinstance(contacts, Sized) else None
        in_order = values(chain([first], rows), names, self.columns is None)
        yield Source(names, batches(in_order, self.chunk_size), total)

    def _rows(self, context: Context) -> Rows:
        rows = unwrap(self, self.contacts, context)
        if callable(rows):
            rows = rows()
        if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
            raise AirflowFailException(f"contacts: a list of rows is needed, not {type(rows).__name__}")
        return rows

    def _names(self, first: Mapping[str, Any] | Sequence[Any]) -> list[str]:
        if isinstance(first, Mapping):
            return list(first if self.columns is None else self.columns)
        if self.column_names is None:
            raise AirflowFailException("column_names: needed when contacts are lists and not dictionaries")
        return list(self.column_names)


def _values(rows: Iterable[Any], names: Sequence[str], all_named: bool) -> Iterator[tuple[Any, ...]]:
    """Dictionaries in the order of the names; rows may leave some out."""
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


class MailUpsertContactOperator(MailTaskMixin, BaseOperator):
    """Creates or updates one contact. (Many: ``MailImportContactsOperator``, one request for thousands.)

    Returns ``sandbox``; the contact stays out of Airflow's sight.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/contacts.md``.

    :param mail_conn_id: the connection.
    :param contact_email: the address; it or ``phone_number`` must be given. (``email`` is Airflow's own: where alerts
        about the task go.)
    :param phone_number: the phone number.
    :param name: the name. The service takes the address when there is none.
    :param list_name: a list that exists, to which the contact is added.
    :param sandbox_mode: let the service check and change nothing.
    """

    template_fields: Sequence[str] = ("mail_conn_id", "contact_email", "phone_number", "name", "list_name")
    ui_color = "#e6f1f2"
    contact_email = HiddenField()
    phone_number = HiddenField()
    name = HiddenField()

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        contact_email: str | XComArg | None = None,
        phone_number: str | XComArg | None = None,
        name: str | XComArg | None = None,
        list_name: str | XComArg | None = None,
        sandbox_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(sandbox_mode=sandbox_mode)
        if contact_email is None and phone_number is None:
            raise ValueError("contact_email or phone_number must be given (email is where alerts about the task go)")
        self.mail_conn_id = mail_conn_id
        self.contact_email = contact_email
        self.phone_number = phone_number
        self.name = name
        self.list_name = list_name
        self.sandbox_mode = sandbox_mode

    def execute(self, context: Context) -> dict[str, Any]:
        """Save the contact."""
        from airflow_provider_mail.api.contacts import UpsertContact

        fields: dict[str, Any] = {
            "email": unwrap(self, self.contact_email, context) or None,
            "phone_number": unwrap(self, self.phone_number, context) or None,
            "name": unwrap(self, self.name, context) or None,
            "list_name": self.list_name or None,
            "sandbox_mode": self.sandbox_mode or None,
        }
        with self.mail_errors():
            self.hook.send(UpsertContact(**fields))
            sandbox = self.sandbox_mode or self.hook.config.sandbox
        self.log.info("Sandbox: the contact would be saved." if sandbox else "The contact was saved.")
        return {"sandbox": sandbox}


class MailDeleteContactOperator(BaseDeleteOperator):
    """Deletes a contact for good, and returns a receipt, for instance for a request for erasure.

    Returns ``deleted``, ``gone`` (whether the service, asked afterwards, does not know the address), ``at`` (ISO 8601,
    UTC), ``reference`` and ``sandbox``; never the address.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/contacts.md``.

    :param contact_email: the address. (``email`` is Airflow's own: where alerts about the task go.)
    :param reference: what the receipt is kept under, such as the number of the request.
    """

    template_fields: Sequence[str] = (*BaseDeleteOperator.template_fields, "contact_email", "reference")
    thing = "contact"
    contact_email = HiddenField()

    def __init__(self, *, contact_email: str | XComArg, reference: str | XComArg | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.contact_email = contact_email
        self.reference = reference

    @property
    def identity(self) -> dict[str, str]:
        return {}

    def deletion(self, context: Context) -> DeleteContact:
        from airflow_provider_mail.api.contacts import DeleteContact

        return DeleteContact(email=unwrap(self, self.contact_email, context), sandbox_mode=self.sandbox_mode or None)

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the contact, and ask for it afterwards."""
        from datetime import UTC, datetime

        result = super().execute(context)
        with self.mail_errors():
            gone = not self.hook.run(self.deletion(context).exists())
        if not gone and not result["sandbox"]:
            raise AirflowException("the service reports that the contact is deleted, and still knows it")
        at = datetime.now(UTC).replace(microsecond=0).isoformat()
        return {**result, "gone": gone, "at": at, "reference": self.reference}
