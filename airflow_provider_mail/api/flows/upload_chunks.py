"""Upload the chunks of a contact import; bisect a rejected chunk to find the rows that cause the rejection.

A limit of the account (contacts, credits) is reported like an invalid row: the specification shows no codes for
imports. So before rows are rejected, a valid new contact is sent in sandbox mode, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec

from airflow_provider_mail.api._core.pacing import Interrupt
from airflow_provider_mail.api._core.requests import MailResponse
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.contacts import ColumnMapping, ImportContacts, UpdateMode
from airflow_provider_mail.api.errors import MailError, MailInterruptedError, MailRejectedError, MailValidationError
from airflow_provider_mail.api.flows.validate_rows import Reject, Row

__all__ = ["ImportPlan"]

MAX_REJECTED_ROWS = 50
"""After this many rejected rows of one chunk the account is checked: the rows may not be the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What to import, and how.

    :param properties: the property of each value of a row, by position: ``email``, ``name``, ``phoneNumber`` or another
        that the platform knows (the specification has no complete list).
    :param update_mode: whether to create new contacts and to update existing ones.
    :param list_name: the list to add the contacts to; created when missing. Default: none.
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
            raise MailValidationError("null_value: holds half a surrogate pair, which is not text") from None
        self.template()

    def template(self) -> ImportContacts:
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
class ChunkResult:
    """The result of uploading one chunk.

    :param earlier: further rows of the chunk, which were accepted in an earlier try.
    :param requests: requests that got a response.
    :param requests_with_message: requests that were accepted with a message.
    """

    rows: int
    earlier: int = 0
    accepted: int = 0
    requests: int = 0
    requests_with_message: int = 0
    rejects: list[Reject] = field(default_factory=list)
    error: MailError | None = None

    @property
    def complete(self) -> bool:
        return self.accepted + len(self.rejects) == self.rows

    @property
    def some_accepted(self) -> bool:
        """Whether the service has accepted any row of the chunk; if so, the rows cause a rejection, not the account."""
        return bool(self.accepted or self.earlier)


class _RejectedRows(NamedTuple):
    """Rows of one request that the service rejected, with their numbers."""

    rows: list[Row]
    numbers: Sequence[int]
    rejection: MailRejectedError


class ChunkUploader:
    """Uploads chunks from many threads, and bisects those that the service rejects."""

    def __init__(self, client: MailClient, plan: ImportPlan, interrupt: Interrupt) -> None:
        self._client = client
        self._template = plan.template()
        self._plan = plan
        self._accepted: bytes | None = None
        self._interrupt = interrupt

    def upload(self, encoded: bytes, numbers: Sequence[int], earlier: int) -> ChunkResult:
        """Upload one chunk.

        :param encoded: its rows as JSON.
        :param earlier: further rows of the chunk, which were accepted in an earlier try.
        """
        result = ChunkResult(len(numbers), earlier)
        finished = False
        try:
            rejection = self._post(encoded, len(numbers), result)
            if rejection is not None:
                rows = msgspec.json.decode(encoded)
                self._bisect(_RejectedRows(rows, numbers, rejection), result)
            finished = not self._interrupt.stopped
        except MailError as error:
            result.error = error
        if not finished and not result.some_accepted:
            # The rows may not be the cause.
            result.rejects.clear()
        return result

    def _bisect(self, rejected: _RejectedRows, result: ChunkResult) -> None:
        """Halve rejected rows until each row that the service rejects is alone in a request."""
        pending = [rejected]
        rejects: list[Reject] = []
        rejections: list[MailRejectedError] = []
        while pending and not self._interrupt.stopped:
            part = pending.pop()
            if len(part.rows) == 1:
                if len(rejects) == MAX_REJECTED_ROWS:
                    if not result.some_accepted:
                        raise part.rejection
                    self._report(rejects, rejections, result)
                message = part.rejection.service_message or "no message"
                reason = f"rejected by the service (code {part.rejection.code}): {message}"
                rejects.append(Reject(row_number=part.numbers[0], field="", reason=reason, row=part.rows[0]))
                rejections.append(part.rejection)
                continue
            middle = len(part.rows) // 2
            # The second half is posted first, so that the first one is popped first. Both are posted before either is
            # halved again: if individual rows are the cause, others are soon accepted.
            for half in (slice(middle, None), slice(middle)):
                rows, numbers = part.rows[half], part.numbers[half]
                rejection = self._post(msgspec.json.encode(rows), len(rows), result)
                if rejection is not None:
                    pending.append(_RejectedRows(rows, numbers, rejection))
        if rejects and not self._interrupt.stopped:
            self._report(rejects, rejections, result)

    def _report(self, rejects: list[Reject], rejections: list[MailRejectedError], result: ChunkResult) -> None:
        """Report the rejected rows and empty both lists, unless a valid contact is rejected with one of their codes."""
        accepted_row = None if self._accepted is None else msgspec.json.decode(self._accepted)[0]
        probe = probe_row(self._plan, accepted_row)
        if probe is not None:
            response = self._request(result, contact_data=[probe], sandbox_mode=True)
            if isinstance(response, MailRejectedError):
                # The limit may have been reached between two of the rows.
                matching = next((rejection for rejection in rejections if rejection.code == response.code), None)
                if matching is not None:
                    raise _account_error(matching, result.accepted)
        result.rejects.extend(rejects)
        rejects.clear()
        rejections.clear()

    def _post(self, encoded: bytes, rows: int, result: ChunkResult) -> MailRejectedError | None:
        response = self._request(result, contact_data=msgspec.Raw(encoded))
        if isinstance(response, MailRejectedError):
            return response
        result.accepted += rows
        result.requests_with_message += bool(response.message)
        self._accepted = encoded
        return None

    def _request(self, result: ChunkResult, **fields: Any) -> MailResponse | MailRejectedError:
        result.requests += 1
        try:
            return self._client.send(self._template.model_copy(update=fields))
        except MailInterruptedError:
            result.requests -= 1
            raise
        except MailRejectedError as rejection:
            return rejection


def probe_row(plan: ImportPlan, accepted_row: Row | None) -> Row | None:
    """Return a contact that the service accepts as long as it accepts any; ``None`` if none is known.

    An import that only updates accepts existing contacts; other imports count new contacts against a limit.

    :param accepted_row: a row that the service has accepted. A new contact has its values, but another identity.
    """
    if plan.update_mode is UpdateMode.UPDATE_ONLY:
        return accepted_row
    missing = plan.null_value
    values = dict(zip(plan.properties, accepted_row or [missing] * len(plan.properties), strict=True))
    if "email" in values:
        email = values["email"] or ""
        values["email"] = f"{token_hex(8)}@{email.rpartition('@')[2] if '@' in email else 'example.com'}"
    if "phoneNumber" in values:
        values["phoneNumber"] = missing if "email" in values else f"+1555{int(token_hex(4), 16):010}"
    return list(values.values())


def _account_error(rejection: MailRejectedError, accepted: int) -> MailRejectedError:
    return MailRejectedError(
        f"{rejection}. The service would reject any contact now, a valid one as well, so the rows are not the cause: "
        f"is the account at a limit? No row is set aside for it; {accepted} rows of this chunk were accepted before",
        operation=rejection.operation,
        **rejection.details,
    )
