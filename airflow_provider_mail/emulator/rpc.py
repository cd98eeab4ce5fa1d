"""The control interface: one table of functions, called directly in this process or over HTTP from another.

A control function is a method marked with ``@control``. Called on a group whose channel is local it runs, under the
service's lock; called on a group whose channel is remote its arguments travel to ``/_emulator/<group>/<name>`` and it
runs there. Arguments and results are plain JSON, so both read the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from airflow_provider_mail.emulator.server import Server
    from airflow_provider_mail.emulator.service import Service

F = TypeVar("F", bound=Callable[..., Any])


class Channel(Protocol):
    """How calls of control functions reach the emulator."""

    def call(self, group: Group, function: Callable[..., Any], args: Any, kwargs: Any) -> Any: ...


class Group:
    """Control functions that belong together; ``name`` is their place in the path."""

    name = ""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    @property
    def service(self) -> Service:
        """The service under control; only control functions, which run beside it, may ask for it."""
        return self._local.service

    @property
    def server(self) -> Server:
        return self._local.server

    @property
    def _local(self) -> LocalChannel:
        assert isinstance(self.channel, LocalChannel), "only a control function may touch the service itself"
        return self.channel


def control(function: F) -> F:
    """Mark a method of a group as a control function."""

    @functools.wraps(function)
    def call(group: Group, *args: Any, **kwargs: Any) -> Any:
        return group.channel.call(group, function, args, kwargs)

    call.is_control = True  # type: ignore[attr-defined]
    return cast(F, call)


def find_control(group: Group | None, name: str) -> Callable[..., Any] | None:
    """The control function of this name; None when the group has none."""
    function = getattr(type(group), name, None)
    return getattr(group, name) if getattr(function, "is_control", False) else None


class LocalChannel:
    """Runs control functions here."""

    def __init__(self, service: Service, server: Server, notify: Callable[[Callable[[], None]], None]) -> None:
        self.service = service
        self.server = server
        #: Runs something in the server's event loop.
        self.notify = notify

    def call(self, group: Group, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with self.service.lock:
            self.service.settle()
            result = function(group, *args, **kwargs)
            self.service.settle()
        self.notify(self.server.pusher.wake)
        return result
