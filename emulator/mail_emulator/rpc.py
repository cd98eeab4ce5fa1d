"""The control interface: remote procedure calls, and the groups for the clock, the faults and the journal.

A control function is a method marked with ``@control``. A local channel runs it under the service's lock; a remote
channel posts its arguments to ``/_emulator/<group>/<name>``. Arguments and results are plain JSON.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from mail_emulator.faults import operation_path

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


class ClockControl(Group):
    """The virtual clock. Tasks, tokens, statistics and events follow immediately."""

    name = "clock"

    @control
    def read(self) -> dict[str, Any]:
        """Return the virtual time (``now``, ISO 8601) and the ``rate``."""
        return {"now": self.service.clock.now().isoformat(), "rate": self.service.clock.rate}

    def now(self) -> datetime:
        """Return the virtual time as an aware datetime."""
        return datetime.fromisoformat(self.read()["now"])

    @control
    def set(self, moment: datetime | str) -> None:
        """Set the clock.

        :param moment: a datetime, or ISO 8601 text, with a time zone.
        """
        self.service.clock.set(_moment(moment))
        self.service.clock_moved()

    @control
    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move the clock by the sum of the arguments.

        :param seconds: virtual seconds; negative ones move it back, as do all others.
        :param minutes: virtual minutes.
        :param hours: virtual hours.
        :param days: virtual days.
        """
        span = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        self.service.clock.advance(span.total_seconds())
        self.service.clock_moved()

    @control
    def run(self, rate: float = 1.0) -> None:
        """Run the clock at a multiple of real time.

        :param rate: the multiple; 3600 is an hour per second.
        """
        self.service.clock.run(rate)
        self.service.clock_moved()

    @control
    def freeze(self, moment: datetime | str | None = None) -> None:
        """Stop the clock until it is moved.

        :param moment: the time to stop at, as for :meth:`set`. Default: now.
        """
        self.service.clock.run(0)
        if moment is not None:
            self.service.clock.set(_moment(moment))
        self.service.clock_moved()


def _moment(moment: datetime | str) -> datetime:
    return datetime.fromisoformat(moment) if isinstance(moment, str) else moment


class FaultControl(Group):
    """Faults. Their kinds are in ``faults.FAULT_KINDS``."""

    name = "faults"

    @control
    def add(
        self,
        kind: str,
        operation: str = "*",
        *,
        count: int | None = 1,
        skip: int = 0,
        where: Mapping[str, Any] | None = None,
        **params: Any,
    ) -> int:
        """Apply a fault to the next ``count`` requests (None: all) of an operation, after skipping ``skip``.

        Of several matching faults the one added first applies.

        :param kind: a name in ``FAULT_KINDS``.
        :param operation: a path, with or without ``/v5/``, or ``*``.
        :param count: number of requests.
        :param skip: number of matching requests to skip first.
        :param where: top-level fields of the body and the values they must have.
        :param params: parameters of the kind.
        :return: id of the fault.
        """
        return self.service.faults.add(kind, operation, count, skip, where or {}, params)

    @control
    def remove(self, fault_id: int) -> None:
        """Remove a fault.

        :param fault_id: its id, from :meth:`add`.
        """
        faults = self.service.faults
        faults.added = [fault for fault in faults.added if fault.id != fault_id]

    @control
    def clear(self) -> None:
        """Remove all faults."""
        self.service.faults.added.clear()

    @control
    def list(self) -> list[dict[str, Any]]:
        """Return all faults, also those used up; ``struck`` counts how often each has applied."""
        return [asdict(fault) for fault in self.service.faults.added]


class JournalControl(Group):
    """The received requests."""

    name = "journal"

    @control
    def entries(self, operation: str | None = None, *, since: int = 0) -> list[dict[str, Any]]:
        """Return requests (fields of ``journal.Entry``), oldest first.

        :param operation: only requests of this operation. Default: all.
        :param since: only requests with a higher sequence number.
        """
        path = operation and operation_path(operation)
        entries = self.service.journal.entries
        return [asdict(entry) for entry in entries if entry.sequence > since and path in (None, entry.operation)]

    @control
    def counts(self) -> dict[str, int]:
        """Return the number of requests per operation path."""
        return dict(self.service.journal.counts)

    def count(self, operation: str | None = None) -> int:
        """Return the number of requests.

        :param operation: only requests of this operation. Default: all.
        """
        counts = self.counts()
        return sum(counts.values()) if operation is None else counts.get(operation_path(operation), 0)

    @control
    def processed(self, operation: str | None = None) -> list[dict[str, Any]]:
        """Return the requests that took effect, whether or not the client received the response.

        :param operation: only requests of this operation. Default: all.
        """
        return [entry for entry in self.entries(operation) if entry["processed"]]

    @control
    def newest(self, limit: int = 50, *, before: int | None = None, containing: str = "") -> list[dict[str, Any]]:
        """Return requests, newest first.

        :param limit: maximum number of requests.
        :param before: only requests with a lower sequence number.
        :param containing: only requests whose path contains this.
        """
        matching = (
            asdict(entry)
            for entry in reversed(self.service.journal.entries)
            if (before is None or entry.sequence < before) and containing in entry.operation
        )
        return list(islice(matching, limit))

    @control
    def response(self, sequence: int) -> str | None:
        """Return the beginning of the body of a response: of the last 1,000 requests, at most 16 KiB; else None.

        :param sequence: sequence number of the request.
        """
        body = self.service.journal.responses.get(sequence)
        return None if body is None else body.decode(errors="replace")

    @control
    def most_in_flight(self) -> int:
        """Return the maximum number of requests in flight so far."""
        return self.service.journal.most_in_flight

    @control
    def clear(self) -> None:
        """Remove all entries, counts and the maximum."""
        self.service.journal.clear()
