"""The control interface: clock, faults, journal, state and settings."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from mail_emulator import oauth
from mail_emulator.faults import operation_path
from mail_emulator.inbox.control import InboxControl
from mail_emulator.inspection import Inspection
from mail_emulator.rpc import Channel, Group, control
from mail_emulator.seeding import Seeding


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
        return self.service.faults.add(kind, operation, count=count, skip=skip, where=where, params=params)

    @control
    def remove(self, fault_id: int) -> None:
        """Remove a fault.

        :param fault_id: its id, from :meth:`add`.
        """
        self.service.faults.remove(fault_id)

    @control
    def clear(self) -> None:
        """Remove all faults."""
        self.service.faults.clear()

    @control
    def list(self) -> list[dict[str, Any]]:
        """Return all faults, also those used up; ``struck`` counts how often each has applied."""
        return self.service.faults.list()


class JournalControl(Group):
    """The received requests."""

    name = "journal"

    @control
    def entries(self, operation: str | None = None, *, since: int = 0) -> list[dict[str, Any]]:
        """Return requests (fields of ``journal.Entry``), oldest first.

        :param operation: only requests of this operation. Default: all.
        :param since: only requests with a higher sequence number.
        """
        return self.service.journal.entries(operation and operation_path(operation), since)

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
        entries = self.service.journal.entries(operation and operation_path(operation))
        return [entry for entry in entries if entry["processed"]]

    @control
    def newest(self, limit: int = 50, *, before: int | None = None, containing: str = "") -> list[dict[str, Any]]:
        """Return requests, newest first.

        :param limit: maximum number of requests.
        :param before: only requests with a lower sequence number.
        :param containing: only requests whose path contains this.
        """
        return self.service.journal.newest(limit, before, containing)

    @control
    def response(self, sequence: int) -> str | None:
        """Return the beginning of the body of a response: of the last 1,000 requests, at most 16 KiB; else None.

        :param sequence: sequence number of the request.
        """
        body = self.service.journal.response(sequence)
        return None if body is None else body.decode(errors="replace")

    @control
    def most_in_flight(self) -> int:
        """Return the maximum number of requests in flight so far."""
        return self.service.journal.most_in_flight

    @control
    def clear(self) -> None:
        """Remove all entries, counts and the maximum."""
        self.service.journal.clear()


class ControlApi(Seeding, Inspection):
    """The control interface that ``Emulator`` and ``EmulatorClient`` share.

    :param channel: how calls reach the emulator.
    """

    clock: ClockControl
    faults: FaultControl
    journal: JournalControl
    inbox: InboxControl

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._create_groups()

    def _create_groups(self) -> None:
        self.clock = ClockControl(self.channel)
        self.faults = FaultControl(self.channel)
        self.journal = JournalControl(self.channel)
        self.inbox = InboxControl(self.channel)

    def groups(self) -> dict[str, Group]:
        """Return all groups by their place in the path."""
        return {group.name: group for group in (self, self.clock, self.faults, self.journal, self.inbox)}

    @control
    def read_settings(self) -> dict[str, Any]:
        """Return all settings by name."""
        settings = self.service.settings
        return {name: getattr(settings, name) for name in settings.__slots__}

    @control
    def change_settings(self, **values: Any) -> None:
        """Change settings: all of them, or none if one is unknown or invalid.

        :param values: values by name.
        :raises ValueError: naming the setting.
        """
        self.service.settings.update(values)

    @control
    def reset(self) -> None:
        """Delete all state, faults and journal entries, and run the clock with real time; settings are kept."""
        service = self.service
        service.store.clear()
        service.faults.clear()
        service.journal.clear()
        service.clock.reset()

    @control
    def issue_token(self) -> str:
        """Issue an OAuth access token without the flow."""
        return oauth.issue_token(self.service.context())

    @control
    def pause_listening(self, seconds: float) -> None:
        """Refuse new connections; open ones continue.

        :param seconds: real seconds.
        :raises ValueError: they are negative or not finite.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError("seconds: must be a finite number that is not negative")
        self._local.notify(lambda: self.server.pause(seconds))

    @control
    def crashes(self) -> list[str]:
        """Return tracebacks of errors of the emulator itself."""
        return self.service.crashes

    @control
    def pushes(self) -> list[dict[str, Any]]:
        """Return attempts to push events (the fields of ``webhook_delivery.Push``), oldest first."""
        return self.server.webhook_sender.attempts()

    @control
    def push_status(self) -> dict[str, int]:
        """Return the number of completed checks for due events (``looks``) and of ``unfinished`` pushes."""
        return self.server.webhook_sender.status()

    def flush_events(self, timeout: float = 30.0) -> None:
        """Wait until every due event was pushed or given up.

        :param timeout: real seconds to wait.
        :raises TimeoutError: when events are still unfinished then.
        """
        deadline = time.monotonic() + timeout
        # The current check may have begun too early, so wait for the second from now.
        enough = self.push_status()["looks"] + 2
        while (status := self.push_status())["looks"] < enough or status["unfinished"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"events are still unfinished after {timeout:g} s")
            time.sleep(0.005)
