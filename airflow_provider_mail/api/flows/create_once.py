"""Create a named resource exactly once: look the exact name up before and after each attempt.

Used for campaigns (:mod:`~airflow_provider_mail.api.flows.create_campaign`) and for lists, templates and senders
(:mod:`~airflow_provider_mail.api.flows.ensure`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from airflow_provider_mail.api._core.clock import NEW_SECONDS
from airflow_provider_mail.api._core.requests import Flow, MailRequest, MailResponse, Pause
from airflow_provider_mail.api.errors import MailError, MailRejectedError

PATIENCE = 30.0
"""Seconds for which a new resource may take to appear, or a new campaign to show more than a draft."""

_BACKOFF = (1, 2, 4, 8, 8, 7)
_BRIEF_STEPS = 3

T = TypeVar("T")
R = TypeVar("R", bound=MailResponse)


class CreationState:
    """What is known of the attempts to create a resource, which the service does not show.

    This class forgets when the process ends. Override the methods to store the state.
    """

    incomplete = False
    """Whether an attempt got code 500, so that the resource may be incomplete."""

    attempted_at: float | None = None
    """Unix time of the last attempt that may have taken effect, successful or not."""

    @property
    def attempted_lately(self) -> bool:
        """Whether the result of an attempt may not be visible yet, or not in its final state."""
        return self.attempted_at is not None and time.time() - self.attempted_at < NEW_SECONDS

    def mark_attempted(self) -> None:
        """Record an attempt; called before the request is sent."""
        self.attempted_at = time.time()

    def clear_attempt(self) -> None:
        """Clear the record of an attempt: it had no effect."""
        self.attempted_at = None

    def mark_incomplete(self) -> None:
        """Record code 500; called before anything else is done."""
        self.incomplete = True

    def mark_complete(self) -> None:
        """Clear the record of code 500: the resource was created completely."""
        self.incomplete = False


@dataclass(frozen=True, slots=True)
class CreateResult(Generic[T, R]):
    """The result of :func:`create_once`: either ``response`` or ``found`` is given.

    :param response: to the successful attempt.
    :param found: the resource that was found after an attempt failed.
    :param server_error: the error of the last attempt that got code 500, if one did.
    """

    response: R | None
    found: T | None = None
    server_error: MailError | None = None


def create_once(
    request: MailRequest[R],
    find: Callable[[], Flow[T | None]],
    *,
    state: CreationState,
    tries: int,
    patience: float,
    check: Callable[[], None] = lambda: None,
    unconfirmed: Callable[[MailError], MailError] = lambda rejection: rejection,
) -> Flow[CreateResult[T, R]]:
    """Create a resource that was not found; after each failed attempt look it up before the next one.

    :param request: creates the resource.
    :param find: looks it up by its exact name.
    :param state: what is known of earlier attempts; updated.
    :param tries: maximum number of attempts.
    :param patience: seconds of lookups after a failed attempt; about a quarter of that after a rejection of the first.
    :param check: called before an attempt, unless an earlier one may have taken effect; raises to prevent it.
    :param unconfirmed: makes the error for a rejection when an earlier attempt may have taken effect, and the resource
        is not found. Default: the rejection.
    :raises MailError: the error of the last attempt.
    """
    server_error: MailError | None = None
    for attempt in range(1, tries + 1):
        in_doubt = state.attempted_lately
        if not in_doubt:
            check()
            state.mark_attempted()
        try:
            response: R = yield request
        except MailError as error:
            if not error.may_have_taken_effect:
                if not in_doubt:
                    state.clear_attempt()
                # A rejection may mean that the name was taken in the meantime.
                if not isinstance(error, MailRejectedError):
                    raise
            # The document's code, in the body. A bare HTTP 500 (of a proxy) is a lost response like 502, 503 and 504.
            if error.code == 500:
                # Recorded: the kept resource may appear only after another attempt is rejected because of its name.
                state.mark_incomplete()
                server_error = error
            found = yield from find_repeatedly(find, pauses(patience, brief=state.attempted_at is None))
            if found is not None:
                return CreateResult(None, found, server_error)
            if not error.may_have_taken_effect:
                raise (unconfirmed(error) if in_doubt else error) from None
            if attempt == tries:
                raise
        else:
            state.mark_complete()
            return CreateResult(response)
    raise AssertionError("unreachable")


def find_repeatedly(find: Callable[[], Flow[T | None]], waits: Sequence[float]) -> Flow[T | None]:
    """Look a resource up until it is found, since a new one may appear late.

    :param find: looks it up.
    :param waits: seconds to pause before each further lookup.
    """
    found = yield from find()
    for seconds in waits:
        if found is not None:
            break
        yield Pause(seconds)
        found = yield from find()
    return found


def pauses(patience: float, *, brief: bool = False) -> list[float]:
    """Return the seconds to pause between lookups, growing exponentially.

    :param patience: seconds of all pauses together.
    :param brief: only the first pauses, about a quarter of the time: for what is unlikely to change.
    """
    unit = patience / sum(_BACKOFF)
    return [unit * share for share in (_BACKOFF[:_BRIEF_STEPS] if brief else _BACKOFF)]
