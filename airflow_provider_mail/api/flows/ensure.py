"""What has a name is created once and deleted once, whatever happens to an answer.

For lists, templates and senders (effects CREATE and DELETE). Campaigns have more to them: `create_campaign`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from airflow_provider_mail.api._core.requests import Flow, Pause
from airflow_provider_mail.api.errors import (
    MailConflictError,
    MailError,
    MailMissingError,
    MailRejectedError,
)


class Creatable(Protocol):
    """A request that creates something named."""

    path: ClassVar[str]

    def find(self) -> Flow[Any]:
        """What has exactly this name at the service, or ``None``."""

    def differences(self, found: Any) -> list[str]:
        """The request's fields in which what was found is another thing than was asked for."""


class Deletable(Protocol):
    """A request that deletes something named."""

    path: ClassVar[str]
    lookup_is_authoritative: ClassVar[bool]
    """Whether a look that does not find it means that it is not there."""

    def exists(self) -> Flow[bool]:
        """Whether it is (still) there."""


def create(
    request: Creatable, *, replace: Deletable | None = None, tries: int = 3, looks: int = 3, pause: float = 2.0
) -> Flow[bool]:
    """Create it, unless it exists already and is equal; whether it was created.

    :param request: such as ``AddList``.
    :param replace: deletes one that exists and differs; for a moment there is none.
    :param tries: how often to create, each time after having looked.
    :param looks: how often to look after a creation that did not succeed, since it may appear late.
    :param pause: seconds between these looks.
    :raises MailConflictError: one of that name exists and differs; the fields are named.
    """
    try:
        if (yield from _is_there(request, 1, pause)):
            return False
    except MailConflictError:
        if replace is None:
            raise
        yield from delete(replace)
    for attempt in range(1, tries + 1):
        try:
            yield request  # type: ignore[misc]
        except MailError as error:
            # A refusal may mean that the name has been taken meanwhile; a lost answer may hide a success.
            if not error.may_have_taken_effect and not isinstance(error, MailRejectedError):
                raise
            if (yield from _is_there(request, looks, pause)):
                return error.may_have_taken_effect
            if attempt == tries or not error.may_have_taken_effect:
                raise
        else:
            return True
    raise AssertionError("unreachable")


def _is_there(request: Creatable, looks: int, pause: float) -> Flow[bool]:
    for look in range(1, looks + 1):
        found = yield from request.find()
        if found is not None:
            if different := request.differences(found):
                raise MailConflictError(
                    f"{request.path}: one of that name exists and differs in {', '.join(different)}: choose another "
                    "name, or delete that one",
                    operation=request.path,
                )
            return True
        if look < looks:
            yield Pause(pause)
    return False


def delete(request: Deletable, *, missing_ok: bool = True) -> Flow[bool]:
    """Delete it; whether it was there.

    :param request: such as ``DeleteList``.
    :param missing_ok: let what is not there be deleted already.
    :raises MailMissingError: there is nothing of that name, and ``missing_ok`` is false.
    """
    # How the service answers for what is not there is not shown in the document, so it is looked for.
    there: bool = yield from request.exists()
    if not there and not missing_ok:
        raise MailMissingError(f"{request.path}: there is nothing of that name", operation=request.path)
    if not there and request.lookup_is_authoritative:
        return False
    try:
        yield request  # type: ignore[misc]
    except MailRejectedError:
        if (yield from request.exists()):
            raise
        # It was not there, or somebody else was quicker.
    return there
