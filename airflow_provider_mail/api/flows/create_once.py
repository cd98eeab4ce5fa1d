"""Create a named resource exactly once: look up the exact name before and after each attempt.

Lists, templates and senders are created and deleted by :func:`create` and :func:`delete`. Campaigns need more: see
:mod:`~airflow_provider_mail.api.flows.create_campaign`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from airflow_provider_mail.api._core.pacing import NEW_SECONDS
from airflow_provider_mail.api._core.requests import Client, MailRequest, MailResponse
from airflow_provider_mail.api.errors import MailConflictError, MailError, MailNotFoundError, MailRejectedError

PAUSES = (1.0, 2.0, 4.0, 8.0, 8.0, 7.0)
"""Seconds between lookups: in half a minute, a new resource appears, and a new campaign no longer shows as a draft."""

BRIEF_PAUSES = PAUSES[:3]
"""The same if a change is unlikely."""

ATTEMPTS = 3
"""Maximum number of attempts to create a resource in one try."""

T = TypeVar("T")
R = TypeVar("R", bound=MailResponse)


class Creation(BaseModel):
    """What is known of the creation of a resource: the next try reads it, compares it with its request, and returns it.

    :param requested: the name that was asked for. Empty: nothing is known.
    :param mail_name: its name at the service, which may have rewritten the requested one.
    :param guid: its unique identifier, once the service has returned it: from then on, it identifies the campaign.
    :param adopted: whether it existed before the last try, equal to the request.
    :param incomplete: whether an attempt got code 500, so that the resource may be incomplete.
    :param mail_status: as the service showed it when it was adopted.
    :param attempted_at: Unix time of the last attempt that may have taken effect, successful or not.
    :param seen: whether the campaign was created or adopted, and shown: if it can no longer be found, it was removed.
    :param sends_at: Unix time from which the campaign counts as sent; ``None`` if it is not to be sent.
    :param digests: of the fields of the last request that may have taken effect, by name: the service does not show all
        of them.

    All times are by the service's clock.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    version: Literal[6] = 6
    requested: str = ""
    mail_name: str = ""
    guid: str | None = None
    adopted: bool = False
    incomplete: bool = False
    mail_status: int | None = None
    attempted_at: float | None = None
    seen: bool = False
    sends_at: float | None = None
    digests: Mapping[str, str] = {}

    @property
    def has_attempted(self) -> bool:
        """Whether a try may have created a campaign, as the record shows."""
        return self.attempted_at is not None or self.seen or self.incomplete or self.guid is not None

    def attempted_lately(self, now: float) -> bool:
        """Whether the result of an attempt may not be visible yet, or not in its final state."""
        return self.attempted_at is not None and now - self.attempted_at < NEW_SECONDS

    def was_sent(self, now: float) -> bool:
        """Whether the campaign was sent, or may have been."""
        return self.sends_at is not None and self.sends_at <= now


@dataclass(slots=True, kw_only=True)
class CreationState:
    """The record of a creation, and what this try knows about the earlier ones.

    :param save: called with the record before and after a change, and stores it, before the next step. Default: it is
        kept only in memory.
    :param cleared: whether a user has cleared the task since the record was stored, so that this is no automatic retry.
    :param send_again: whether the user wants a second campaign; only a cleared task creates one.
    :param first_try: whether there was no earlier try.
    :param knows_all: whether the record includes the attempts of all earlier tries.
    :param is_lost: whether there were earlier tries whose attempts are not known.
    :param own_name: whether the campaign's name is one that no other task uses.
    :param may_have_moved: whether this is a task of a mapped list in a run that was cleared: what it creates now,
        another one of the same run may have created, and the record may be that of another item.
    :param server_error: the error of the last attempt of this try that got code 500, if one did.
    """

    creation: Creation = field(default_factory=Creation)
    save: Callable[[Creation, Creation], None] = lambda before, creation: None
    cleared: bool = False
    send_again: bool = False
    first_try: bool = False
    knows_all: bool = False
    is_lost: bool = False
    own_name: bool = False
    may_have_moved: bool = False
    server_error: MailError | None = None

    @property
    def is_own(self) -> bool | None:
        """Whether an earlier try created the campaign of this name; ``None`` if that is unknown."""
        if self.creation.has_attempted or self.own_name:
            return True
        return False if (self.knows_all or self.first_try) and not self.may_have_moved else None

    @property
    def may_have_attempted(self) -> bool:
        """Whether a try may have created a campaign, as the record shows or because it was lost."""
        return self.creation.has_attempted or self.is_lost

    def note(self, **changes: Any) -> None:
        self.put(self.creation.model_copy(update=changes))

    def put(self, creation: Creation) -> None:
        before, self.creation = self.creation, creation
        if creation != before:
            self.save(before, creation)


def create_once(
    client: Client,
    request: MailRequest[R],
    search: Callable[[Sequence[float], bool], T | None],
    *,
    state: CreationState,
    digests: Mapping[str, str] = MappingProxyType({}),
    check: Callable[[], None] = lambda: None,
    unconfirmed: Callable[[MailError], MailError] = lambda rejection: rejection,
) -> R | T:
    """Create a resource that was not found; after each failed attempt look it up before the next one.

    :param search: looks it up until it is found: given the seconds to pause before each further lookup, and whether an
        attempt may have created it.
    :param state: what is known of earlier attempts; updated.
    :param digests: of the fields of the request, for the record. Default: none.
    :param check: called before an attempt, unless a recent one may have taken effect; raises to prevent the attempt.
    :param unconfirmed: returns the error for a rejection when a recent attempt may have taken effect and the resource
        is not found. Default: the rejection.
    :return: the response, or the resource that was found after an attempt failed.
    :raises MailError: the error of the last attempt.
    """
    clock = client.service_clock
    for attempt in range(1, ATTEMPTS + 1):
        before = state.creation
        in_doubt = before.attempted_lately(clock.time())
        if not in_doubt:
            check()
        state.note(attempted_at=clock.time(), digests=digests)
        try:
            return client.send(request)
        except MailError as error:
            if not error.may_have_taken_effect:
                # This attempt had no effect; an earlier one of any age may have had.
                state.put(before)
                # A rejection may mean that the name was taken in the meantime.
                if not isinstance(error, MailRejectedError):
                    raise
            # The code of the specification, in the body. An HTTP 500 without it (of a proxy) is a lost response.
            if error.code == 500:
                # Recorded first: the resource may appear only after another attempt is rejected because of its name.
                state.note(incomplete=True)
                state.server_error = error
            waits = PAUSES if state.creation.attempted_lately(clock.time()) else BRIEF_PAUSES
            resource = search(waits, state.may_have_attempted)
            if resource is not None:
                return resource
            if not error.may_have_taken_effect:
                raise (unconfirmed(error) if in_doubt else error) from None
            if attempt == ATTEMPTS:
                raise
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
    client.open_ahead()
    existing = request.find(client)
    if existing is not None and replace is not None and request.differences(existing):
        delete(client, replace)
        existing = None
    created = False
    if existing is None:
        state = CreationState()

        def search(waits: Sequence[float], _: bool) -> Any:
            return find_repeatedly(partial(request.find, client), client.pause, waits)

        existing = create_once(client, request, search, state=state)
        if isinstance(existing, MailResponse):
            return True
        created = state.creation.attempted_at is not None
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
    :raises MailNotFoundError: there is no resource of that name, and ``missing_ok`` is false.
    """
    # The specification does not show the response for a missing resource, so it is looked up first.
    client.open_ahead()
    exists: bool = request.exists(client)
    if not exists and not missing_ok:
        raise MailNotFoundError(f"{request.path}: there is no resource of that name", operation=request.path)
    if not exists and request.lookup_is_authoritative:
        return False
    try:
        client.send(request)
    except MailRejectedError:
        if request.exists(client):
            raise
        # It did not exist, or was deleted by another process.
    return exists
