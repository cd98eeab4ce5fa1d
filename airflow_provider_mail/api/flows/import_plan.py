"""The plan of a contact import, its progress, and the checkpoint of earlier tries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_mail.api.contacts import ColumnMapping, ImportContacts, UpdateMode
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.flows.validate_rows import CheckedRows

__all__ = ["ImportPlan", "Progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What to import, and how.

    :param properties: the property of each value of a row, by position: ``email``, ``name``, ``phoneNumber`` or another
        that the platform knows (the specification has no complete list).
    :param update_mode: whether to create new contacts and to update existing ones.
    :param list_name: the list to add the contacts to; created when missing. Default: none.
    :param list_description: the description of the list.
    :param chunk_size: rows per request.
    :param max_in_flight: concurrent requests; limited by the client's own ``max_in_flight``.
    :param null_value: sent for a missing value; the specification does not define the effect of ``null`` on a contact.
    :param sandbox_mode: let the service check the rows and change nothing.
    :raises MailValidationError: naming the wrong field.
    """

    properties: tuple[str, ...]
    update_mode: UpdateMode = UpdateMode.CREATE_AND_UPDATE
    list_name: str | None = None
    list_description: str | None = None
    chunk_size: int = 5000
    max_in_flight: int = 16
    null_value: str | None = None
    sandbox_mode: bool | None = None

    def __post_init__(self) -> None:
        for name in ("chunk_size", "max_in_flight"):
            if getattr(self, name) < 1:
                raise MailValidationError(f"{name}: must be at least 1")
        try:
            (self.null_value or "").encode()
        except UnicodeEncodeError:
            raise MailValidationError("null_value: holds half a surrogate pair, which is no text") from None
        self.template()

    def template(self) -> ImportContacts:
        """Return the request of every chunk, without its rows."""
        return ImportContacts(
            contact_data=[[""] * len(self.properties)],
            contact_data_mapping=[
                ColumnMapping(column_num=number, property_name=name) for number, name in enumerate(self.properties)
            ],
            update_mode=self.update_mode,
            list_name=self.list_name,
            list_description=self.list_description,
            sandbox_mode=self.sandbox_mode,
        )


@dataclass(slots=True)
class Progress:
    """The progress of an import.

    :param read: rows read from the source.
    :param accepted: rows in requests that the service accepted.
    :param accepted_earlier: those of them that were not sent, because the service accepted them in an earlier try.
    :param rejected: rejected rows.
    :param requests: import requests that got a response.
    :param remarks: those of them that were accepted with a message, which the specification has for errors only.
    :param seconds: since the start of the import.
    """

    read: int = 0
    accepted: int = 0
    accepted_earlier: int = 0
    rejected: int = 0
    requests: int = 0
    remarks: int = 0
    seconds: float = 0.0


class ImportCheckpoint(Protocol):
    """Knows which chunks the service accepted in earlier tries, and records those of this one.

    It is called only from the thread that runs the import, except for :meth:`prepare`.
    """

    def lookup(self, chunk: int, first_number: int, checked: CheckedRows) -> Sequence[int] | None:
        """Return which rows of a chunk to send again.

        :param chunk: its index in the source, from 0.
        :param first_number: the number of its first row, valid or not.
        :return: the numbers of the rows that the service rejected, if it accepted exactly this chunk before; ``None``
            to send all valid rows.
        """

    def prepare(self, chunk: int) -> None:
        """Do the time-consuming part of recording a chunk; called in the thread that sends it, before it is sent.

        :param chunk: its index in the source, from 0.
        """

    def accepted(self, chunk: int, rejected: Sequence[int]) -> None:
        """Record that the service accepted a chunk.

        :param chunk: its index in the source, from 0.
        :param rejected: the numbers of the rows that it rejected.
        """
