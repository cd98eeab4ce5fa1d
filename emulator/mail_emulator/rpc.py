"""Remote procedure calls of the control interface: direct in this process, or over HTTP from another.

A control function is a method marked with ``@control``. A local channel runs it under the service's lock; a remote
channel posts its arguments to ``/_emulator/<group>/<name>``. Arguments and results are plain JSON.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from mail_emulator.server import Server
    from mail_emulator.service import Service

F = TypeVar("F", bound=Callable[..., Any])


class Channel(Protocol):
    """How calls of control functions reach the emulator."""

    def call(self, group: Group, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a control function and return its result."""


class Group:
    """A group of control functions; ``name`` is its place in the path."""

    name = ""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    @property
    def service(self) -> Service:
        """The controlled service; only for control functions, which run in its process."""
        return self._local.service

    @property
    def server(self) -> Server:
        return self._local.server

    @property
    def _local(self) -> LocalChannel:
        assert isinstance(self.channel, LocalChannel), "only a control function may use the service"
        return self.channel


def control(function: F) -> F:
    """Mark a method of a group as a control function."""

    @functools.wraps(function)
    def call(group: Group, *args: Any, **kwargs: Any) -> Any:
        return group.channel.call(group, function, args, kwargs)

    call.is_control = True  # type: ignore[attr-defined]
    return cast(F, call)


def find_control(group: Group | None, name: str) -> Callable[..., Any] | None:
    """Return the control function of this name; None when there is none."""
    function = getattr(type(group), name, None)
    return getattr(group, name) if getattr(function, "is_control", False) else None


class LocalChannel:
    """Runs control functions in this process.

    :param notify: runs a function in the server's event loop.
    """

    def __init__(self, service: Service, server: Server, notify: Callable[[Callable[[], None]], None]) -> None:
        self.service = service
        self.server = server
        self.notify = notify

    def call(self, group: Group, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a control function under the service's lock and return its result."""
        with self.service.lock:
            self.service.apply_due_changes()
            result = function(group, *args, **kwargs)
            self.service.apply_due_changes()
        self.notify(self.server.webhook_sender.wake)
        return result
