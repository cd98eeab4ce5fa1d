"""What tests can do to the emulator: move the clock, arrange faults, read the journal, look at and arrange state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_mail.emulator import oauth
from airflow_provider_mail.emulator.faults import operation_path
from airflow_provider_mail.emulator.inspection import Inspection
from airflow_provider_mail.emulator.rpc import Channel, Group, control
from airflow_provider_mail.emulator.seeding import Arrangement


class ClockControl(Group):
    """The virtual clock. Tasks, tokens, statistics and events follow at once."""

    name = "clock"

    @control
    def read(self) -> dict[str, Any]:
        """Virtual time now (``now``, ISO 8601) and how fast it runs (``rate``)."""
        return {"now": self.service.clock.now().isoformat(), "rate": self.service.clock.rate}

    def now(self) -> datetime:
        """Virtual time as an aware datetime."""
        return datetime.fromisoformat(self.read()["now"])

    @control
    def set(self, moment: datetime | str) -> None:
        """Jump to a moment with a time zone (a datetime, or ISO 8601 text)."""
        self.service.clock.set(_moment(moment))
        self.service.clock_moved()

    @control
    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Move the clock forward (back when negative)."""
        span = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        self.service.clock.advance(span.total_seconds())
        self.service.clock_moved()

    @control
    def run(self, rate: float = 1.0) -> None:
        """Let it run at a multiple of real time; 3600 is an hour a second."""
        self.service.clock.run(rate)
        self.service.clock_moved()

    @control
    def freeze(self, moment: datetime | str | None = None) -> None:
        """Let it stand still, now or at a moment, until it is moved."""
        self.service.clock.run(0)
        if moment is not None:
            self.service.clock.set(_moment(moment))
        self.service.clock_moved()


def _moment(moment: datetime | str) -> datetime:
    return datetime.fromisoformat(moment) if isinstance(moment, str) else moment


class FaultControl(Group):
    """The faults waiting to strike. Their kinds are in ``faults.FAULT_KINDS``."""

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
        """Have a fault strike the next ``count`` requests (None: all) of an operation, after letting ``skip`` pass.

        ``operation`` is a path, with or without ``/v5/``, or ``*``. ``where`` names top-level fields of the body and
        the values they must have. Of several faults that match, the one added first strikes. Returns its id.
        """
        return self.service.faults.add(kind, operation, count=count, skip=skip, where=where, params=params)

    @control
    def remove(self, fault_id: int) -> None:
        """Take one fault back."""
        self.service.faults.remove(fault_id)

    @control
    def clear(self) -> None:
        """Take all faults back."""
        self.service.faults.clear()

    @control
    def list(self) -> list[dict[str, Any]]:
        """All faults added, those used up included; ``struck`` counts how often."""
        return self.service.faults.list()


class JournalControl(Group):
    """The requests that came in."""

    name = "journal"

    @control
    def entries(self, operation: str | None = None, *, since: int = 0) -> list[dict[str, Any]]:
        """Requests, oldest first (the fields of ``journal.Entry``), optionally of one operation or after a sequence."""
        return self.service.journal.entries(operation and operation_path(operation), since)

    @control
    def counts(self) -> dict[str, int]:
        """Number of requests per operation path."""
        return dict(self.service.journal.counts)

    def count(self, operation: str | None = None) -> int:
        """Number of requests, of one operation or of all."""
        counts = self.counts()
        return sum(counts.values()) if operation is None else counts.get(operation_path(operation), 0)

    @control
    def processed(self, operation: str | None = None) -> list[dict[str, Any]]:
        """Only the requests that the service carried out, whether or not the client learnt of it."""
        entries = self.service.journal.entries(operation and operation_path(operation))
        return [entry for entry in entries if entry["processed"]]

    @control
    def most_in_flight(self) -> int:
        """The most requests ever under way at once."""
        return self.service.journal.most_in_flight

    @control
    def clear(self) -> None:
        """Forget all entries, counts and the high-water mark."""
        self.service.journal.clear()


class Controls(Arrangement, Inspection):
    """Everything together: the shape that ``Emulator`` and ``EmulatorClient`` share."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._regroup()

    def _regroup(self) -> None:
        self.clock = ClockControl(self.channel)
        self.faults = FaultControl(self.channel)
        self.journal = JournalControl(self.channel)

    def groups(self) -> dict[str, Group]:
        """All groups by their place in the path."""
        return {group.name: group for group in (self, self.clock, self.faults, self.journal)}

    @control
    def read_settings(self) -> dict[str, Any]:
        """All settings by name."""
        settings = self.service.settings
        return {name: getattr(settings, name) for name in settings.__slots__}

    @control
    def change_settings(self, **values: Any) -> None:
        """Change settings while it runs; ``ValueError`` names an unknown or wrong one and nothing is changed."""
        self.service.settings.update(values)

    @control
    def reset(self) -> None:
        """Forget all state, faults and the journal, and let the clock run with real time; settings stay."""
        service = self.service
        service.store.clear()
        service.faults.clear()
        service.journal.clear()
        service.clock.reset()

    @control
    def issue_token(self) -> str:
        """An OAuth access token, without the flow."""
        return oauth.issue_token(self.service.context())

    @control
    def pause_listening(self, seconds: float) -> None:
        """Refuse new connections (as if nothing listened) for so many real seconds; open ones go on."""
        self._local.notify(lambda: self.server.pause(seconds))

    @control
    def crashes(self) -> list[str]:
        """Tracebacks of errors of the emulator itself: there should be none."""
        return self.service.crashes

    @control
    def pushes(self) -> list[dict[str, Any]]:
        """Attempts to push events to callback URLs (the fields of ``pushing.Push``), oldest first."""
        return self.server.pusher.attempts()

    @control
    def push_status(self) -> dict[str, int]:
        """``looks`` for due events completed so far, and pushes still ``unfinished``."""
        return self.server.pusher.status()

    def flush_events(self, timeout: float = 30.0) -> None:
        """Wait (real seconds) until every event due by now was pushed or given up; ``TimeoutError`` when that lasts."""
        deadline = time.monotonic() + timeout
        # A look that was under way may have begun too early, so the second from now counts.
        enough = self.push_status()["looks"] + 2
        while (status := self.push_status())["looks"] < enough or status["unfinished"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"events are still being pushed after {timeout:g} s")
            time.sleep(0.005)
