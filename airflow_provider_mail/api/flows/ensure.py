"""Create or delete a list, template or sender by its name, even if a response is lost.

Campaigns need more: see :mod:`~airflow_provider_mail.api.flows.create_campaign`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.errors import MailConflictError, MailMissingError, MailRejectedError
from airflow_provider_mail.api.flows.create_once import PATIENCE, CreateResult, CreationState, create_once


class Creatable(Protocol):
    """A request that creates a named resource."""

    path: ClassVar[str]

    def find(self) -> Flow[Any]:
        """Get the resource of exactly this name, or ``None``."""

    def differences(self, existing: Any) -> list[str]:
        """Return the fields of the request in which an existing resource differs."""


class Deletable(Protocol):
    """A request that deletes a named resource."""

    path: ClassVar[str]
    lookup_is_authoritative: ClassVar[bool]
    """Whether a lookup that does not find the resource proves that it does not exist."""

    def exists(self) -> Flow[bool]:
        """Return whether the lookup finds the resource."""


def create(
    request: Creatable,
    *,
    replace: Deletable | None = None,
    advice: str = "choose another name, or delete it",
    tries: int = 3,
    patience: float = PATIENCE,
) -> Flow[bool]:
    """Create a resource, unless an equal one exists; return whether it was created.

    :param request: such as ``AddList``.
    :param replace: deletes an existing resource that differs; briefly, no resource has that name. Default: an existing
        resource that differs is an error.
    :param advice: what to do about an existing resource that differs, for the error.
    :param tries: maximum number of attempts.
    :param patience: seconds of lookups after a failed attempt, since a new resource may appear late.
    :raises MailConflictError: a resource of that name exists and differs; the message names the fields.
    """
    existing = yield from request.find()
    if existing is not None and replace is not None and request.differences(existing):
        yield from delete(replace)
        existing = None
    created = False
    if existing is None:
        state = CreationState()
        result: CreateResult[Any, Any] = yield from create_once(
            request,  # type: ignore[arg-type]
            request.find,
            state=state,
            tries=tries,
            patience=patience,
        )
        if result.response is not None:
            return True
        existing, created = result.found, state.attempted_at is not None
    if different := request.differences(existing):
        if created:
            advice = "this task probably created it, and the service rewrites what it is sent: send what it keeps"
        raise MailConflictError(
            f"{request.path}: a resource of that name exists and differs in {', '.join(different)}: {advice}",
            operation=request.path,
        )
    return created


def delete(request: Deletable, *, missing_ok: bool = True) -> Flow[bool]:
    """Delete a resource; return whether it existed.

    :param request: such as ``DeleteList``.
    :param missing_ok: succeed when there is no resource of that name.
    :raises MailMissingError: there is no resource of that name, and ``missing_ok`` is false.
    """
    # The specification does not show the response for a missing resource, so it is looked up first.
    exists: bool = yield from request.exists()
    if not exists and not missing_ok:
        raise MailMissingError(f"{request.path}: there is no resource of that name", operation=request.path)
    if not exists and request.lookup_is_authoritative:
        return False
    try:
        yield request  # type: ignore[misc]
    except MailRejectedError:
        if (yield from request.exists()):
            raise
        # It did not exist, or was deleted by another process.
    return exists
