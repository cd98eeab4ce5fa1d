"""Contacts: import those that a DAG has at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_mail.operators.contact_import import PROPERTIES, BaseContactImportOperator, Source
from airflow_provider_mail.operators.hidden import HiddenField, revealed

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

Rows: TypeAlias = "Iterable[Mapping[str, Any] | Sequence[Any]]"


class MailImportContactsOperator(BaseContactImportOperator):
    """Imports contacts that another task returned, or that a function yields.

    .. seealso::
        For more information on how to use this operator, see ``docs/contacts.md``.

    :param contacts: rows: dictionaries, or lists in the order of ``column_names``; or a function without arguments that
        returns or yields them. XCom is for small sets: take ``SqlToMailContactsOperator`` for large ones.
    :param column_names: names of the values, when rows are lists.
    """

    template_fields: Sequence[str] = (*BaseContactImportOperator.template_fields, "contacts", "column_names")
    contacts = HiddenField()

    def __init__(
        self, *, contacts: Rows | Callable[[], Rows], column_names: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.contacts = contacts
        self.column_names = column_names

    @contextmanager
    def source(self, context: Context) -> Iterator[Source]:
        """The rows, told apart from their names."""
        from itertools import chain

        from airflow_provider_mail.api.contact_import import batches

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
        rows = revealed(self, self.contacts, context)
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
