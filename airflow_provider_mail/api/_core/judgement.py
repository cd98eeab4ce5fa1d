"""Judges whether an answer is everything that the service has, from all that was learned about it.

Whatever records, removes or replaces something because an answer lacks it, asks here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from airflow_provider_mail.api.errors import MailIncompleteError

SAMPLE = 20
"""How many records are asked for one by one, of many that two readings lack."""


class Verdict(Enum):
    COMPLETE = "complete"
    SHORT = "short"
    """The service has more records than the answer."""
    UNKNOWN = "unknown"
    """Nothing shows whether it has more."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was learned about an answer.

    :param got: the number of distinct records of all its readings.
    :param total: the number of records that the service reports; ``None`` if it reports none, or a negative one.
    :param found: records that no reading has, and that another operation returns although they belong to the answer.
    """

    got: int
    total: int | None
    found: Collection[str] = ()

    @property
    def verdict(self) -> Verdict:
        if self.found:
            return Verdict.SHORT
        if self.total is None or self.total < 0:
            return Verdict.UNKNOWN
        return Verdict.COMPLETE if self.got >= self.total else Verdict.SHORT


def require_complete(evidence: Evidence, operation: str, *, what: str = "records came", hint: str = "") -> None:
    """Reject an answer that is not complete.

    :param what: what was counted, and of which part of the data, for the message.
    :raises MailIncompleteError: the answer is short, or it is not known whether it is.
    """
    if evidence.verdict is Verdict.COMPLETE:
        return
    got, total = evidence.got, evidence.total
    if evidence.found:
        reason = f"{got} {what}, and at least {len(evidence.found)} are missing that the service returns elsewhere"
    elif evidence.verdict is Verdict.UNKNOWN:
        reason = f"{got} {what}, and no response has a valid totalRecords, so it is not known whether they are all"
    else:
        reason = f"{got} {what}, the service reports {total}"
    raise MailIncompleteError(
        f"{operation}: {reason}{f'. {hint}' if hint else ''}",
        got=got,
        expected=None if evidence.verdict is Verdict.UNKNOWN else max(total or 0, got + len(evidence.found)),
        operation=operation,
    )
