"""Create a named resource exactly once: look up the exact name before and after each attempt.

Lists, templates and senders are created and deleted by :func:`create` and :func:`delete`. Campaigns need more: see
:mod:`~airflow_provider_mail.api.flows.create_campaign`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from airflow_provider_mail.api._core.clock import NEW_SECONDS
from airflow_provider_mail.api._core.requests import Client, MailRequest, MailResponse
from airflow_provider_mail.api.errors import MailConflictError, MailError, MailMissingError, MailRejectedError

PATIENCE = 30.0
"""Seconds that a new resource may take to appear, or a new campaign to no longer show as a draft."""

_BACKOFF = (1, 2, 4, 8, 8, 7)
_BRIEF_STEPS = 3

T = TypeVar("T")
R = TypeVar("R", bound=MailResponse)


class CreationState:
    """The known state of the attempts to create a resource, which the service does not show.

    This class holds the state only in memory. Override the methods to store the state.
    """

    mail_name: str | None = None
    """The campaign to which the other attributes refer."""

    guid: str | None = None
    """The campaign's unique identifier, once the service has returned it: from then on, it identifies the campaign."""

    incomplete = False
    """Whether an attempt got code 500, so that the resource may be incomplete."""

    attempted_at: float | None = None
    """Unix time, by the service's clock, of the last attempt that may have taken effect, successful or not."""

    seen = False
    """Whether the campaign was created or adopted, and shown: if it can no longer be found, it was removed."""

    sends_at: float | None = None
    """Unix time, by the service's clock, from which the campaign counts as sent; ``None`` if it is not to be sent."""

    digests: Mapping[str, str] = MappingProxyType({})
    """Of the fields of the last request that may have taken effect, by name: the service does not show all of them."""

    cleared = False
    """Whether a user has cleared the task since the state was written, so that this is not an automatic retry."""

    send_again = False
    """Whether the user wants a second campaign; only a cleared task creates one."""

    first_try = False
    """Whether there was no earlier try."""

    knows_all = False
    """Whether the state includes the attempts of all earlier tries."""

    is_lost = False
    """Whether there were earlier tries whose attempts are not known."""

    own_name = False
    """Whether the campaign's name is one that no other task uses."""

    @property
    def is_own(self) -> bool | None:
        """Whether an earlier try created the campaign of this name; ``None`` if that is unknown."""
        if self.has_attempted or self.own_name:
            return True
        return False if self.knows_all or self.first_try else None

    @property
    def has_attempted(self) -> bool:
        """Whether a try may have created a campaign, as the state shows."""
        return self.attempted_at is not None or self.seen or self.incomplete or self.guid is not None

    @property
    def may_have_attempted(self) -> bool:
        """Whether a try may have created a campaign, as the state shows or because it was lost."""
        return self.has_attempted or self.is_lost

    def attempted_lately(self, now: float) -> bool:
        """Whether the result of an attempt may not be visible yet, or not in its final state.

        :param now: Unix time by the service's clock.
        """
        return self.attempted_at is not None and now - self.attempted_at < NEW_SECONDS

    def was_sent(self, now: float) -> bool:
        """Whether the campaign has mailed somebody, or may have.

        :param now: Unix time by the service's clock.
        """
        return self.sends_at is not None and self.sends_at <= now

    def start(self, mail_name: str) -> None:
        """Begin with a campaign; discard the state of a campaign of another name."""
        if self.mail_name not in (None, mail_name):
            self.forget()
        self.mail_name = mail_name

    def forget(self) -> None:
        """Discard what is known of a campaign that is gone, or of another name."""
        self.incomplete = self.seen = False
        self.attempted_at = self.sends_at = self.guid = None
        self.digests = {}

    def mark_attempted(self, at: float | None = None) -> None:
        """Record an attempt; called before the request is sent.

        :param at: Unix time by the service's clock. Default: the local time.
        """
        self.attempted_at = time.time() if at is None else at

    def clear_attempt(self, earlier: float | None = None) -> None:
        """Clear the record of an attempt that had no effect.

        :param earlier: the time of an earlier attempt that may have had an effect. Default: there was none.
        """
        self.attempted_at = earlier

    def mark_incomplete(self) -> None:
        """Record code 500; called before the next step."""
        self.incomplete = True

    def mark_complete(self) -> None:
        """Clear the record of code 500: the resource was created completely."""
        self.incomplete = False

    def mark_created(self, sends_at: float | None, guid: str | None) -> None:
        """Record a campaign that was created, and that the service may not show yet.

        :param sends_at: as for :meth:`mark_seen`.
        :param guid: as for :meth:`mark_seen`. Without one, nothing but its name shows later that it is this one.
        """
        self.guid, self.sends_at = guid, sends_at
        self.seen = guid is None

    def mark_seen(self, sends_at: float | None, guid: str | None) -> None:
        """Record that the campaign was created or adopted.

        :param sends_at: Unix time, by the service's clock, from which it counts as sent; ``None`` if it will not be.
        :param guid: its unique identifier, if the service has returned it.
        """
        self.seen = True
        self.guid = guid or self.guid
        self.sends_at = sends_at

    def mark_sends_at(self, sends_at: float | None) -> None:
        """Record when a campaign that is not adopted counts as sent.

        :param sends_at: as for :meth:`mark_seen`.
        """
        self.sends_at = sends_at


@dataclass(frozen=True, slots=True)
class CreateResult(Generic[T, R]):
    """The result of :func:`create_once`: either ``response`` or ``existing`` is given.

    :param existing: the resource that was found after an attempt failed.
    :param server_error: the error of the last attempt that got code 500, if one did.
    """

    response: R | None
    existing: T | None = None
    server_error: MailError | None = None


def create_once(
    client: Client,
    request: MailRequest[R],
    search: Callable[[Sequence[float], bool], T | None],
    *,
    state: CreationState,
    tries: int,
    patience: float,
    digests: Mapping[str, str] = MappingProxyType({}),
    check: Callable[[], None] = lambda: None,
    unconfirmed: Callable[[MailError], MailError] = lambda rejection: rejection,
) -> CreateResult[T, R]:
    """Create a resource that was not found; after each failed attempt look it up before the next one.

    :param search: looks it up until it is found: given the seconds to pause before each further lookup, and whether an
        attempt may have created it.
    :param state: the known state of earlier attempts; updated.
    :param tries: maximum number of attempts.
    :param patience: seconds of lookups after a failed attempt; about a quarter of that if the first one is rejected.
    :param digests: of the fields of the request, for the state. Default: none.
    :param check: called before an attempt, unless a recent one may have taken effect; raises to prevent the attempt.
    :param unconfirmed: returns the error for a rejection when a recent attempt may have taken effect and the resource
        is not found. Default: the rejection.
    :raises MailError: the error of the last attempt.
    """
    clock = client.service_clock
    server_error: MailError | None = None
    for attempt in range(1, tries + 1):
        earlier_digests = state.digests
        earlier, in_doubt = state.attempted_at, state.attempted_lately(clock.time())
        if not in_doubt:
            check()
        state.digests = digests
        state.mark_attempted(clock.time())
        try:
            response: R = client.send(request)
        except MailError as error:
            if not error.may_have_taken_effect:
                # This attempt had no effect; an earlier one of any age may have had.
                state.digests = earlier_digests
                state.clear_attempt(earlier)
                # A rejection may mean that the name was taken in the meantime.
                if not isinstance(error, MailRejectedError):
                    raise
            # The code of the specification, in the body. An HTTP 500 without it (of a proxy) is a lost response.
            if error.code == 500:
                # Recorded first: the resource may appear only after another attempt is rejected because of its name.
                state.mark_incomplete()
                server_error = error
            brief = not state.attempted_lately(clock.time())
            resource = search(pauses(patience, brief=brief), state.may_have_attempted)
            if resource is not None:
                return CreateResult(None, resource, server_error)
            if not error.may_have_taken_effect:
                raise (unconfirmed(error) if in_doubt else error) from None
            if attempt == tries:
                raise
        else:
            state.mark_complete()
            return CreateResult(response)
    raise AssertionError("unreachable")


def find_repeatedly(find: Callable[[], T | None], pause: Callable[[float], None], waits: Sequence[float]) -> T | None:
    """Look up a resource until it is found, since a new one may appear late.

    :param waits: seconds to pause before each further lookup.
    """
    resource = find()
    for seconds in waits:
        if resource is not None:
            break
        pause(seconds)
        resource = find()
    return resource


def pauses(patience: float, *, brief: bool = False) -> list[float]:
    """Return the seconds to pause between lookups, growing exponentially.

    :param patience: total seconds of all pauses.
    :param brief: only the first pauses, about a quarter of the time, if a change is unlikely.
    """
    unit = patience / sum(_BACKOFF)
    return [unit * share for share in (_BACKOFF[:_BRIEF_STEPS] if brief else _BACKOFF)]


def create(
    client: Client,
    request: MailRequest[Any],
    *,
    replace: MailRequest[Any] | None = None,
    advice: str = "choose another name, or delete it",
) -> bool:
    """Create a resource, unless an equal one exists; return whether it was created.

    :param request: such as ``AddList``.
    :param replace: deletes an existing resource that differs; briefly, no resource has that name. Default: an existing
        resource that differs is an error.
    :param advice: what to do about an existing resource that differs, for the error.
    :raises MailConflictError: a resource of that name exists and differs; the message names the fields.
    """
    existing = request.find(client)
    if existing is not None and replace is not None and request.differences(existing):
        delete(client, replace)
        existing = None
    created = False
    if existing is None:
        state = CreationState()

        def search(waits: Sequence[float], _: bool) -> Any:
            return find_repeatedly(partial(request.find, client), client.pause, waits)

        result = create_once(client, request, search, state=state, tries=3, patience=PATIENCE)
        if result.response is not None:
            return True
        existing, created = result.existing, state.attempted_at is not None
    if different := request.differences(existing):
        if created:
            advice = "this task probably created it, and the service rewrites what it is sent: send what it keeps"
        raise MailConflictError(
            f"{request.path}: a resource of that name exists and differs in {', '.join(different)}: {advice}",
            operation=request.path,
        )
    return created


def delete(client: Client, request: MailRequest[Any], *, missing_ok: bool = True) -> bool:
    """Delete a resource; return whether it existed.

    :param request: such as ``DeleteList``.
    :param missing_ok: succeed when there is no resource of that name.
    :raises MailMissingError: there is no resource of that name, and ``missing_ok`` is false.
    """
    # The specification does not show the response for a missing resource, so it is looked up first.
    exists: bool = request.exists(client)
    if not exists and not missing_ok:
        raise MailMissingError(f"{request.path}: there is no resource of that name", operation=request.path)
    if not exists and request.lookup_is_authoritative:
        return False
    try:
        client.send(request)
    except MailRejectedError:
        if request.exists(client):
            raise
        # It did not exist, or was deleted by another process.
    return exists
