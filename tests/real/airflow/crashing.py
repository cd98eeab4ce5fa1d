"""Tasks that end their own process with SIGKILL, at the point that the run's configuration names.

`{"point": "after request 2", "tries": [1, 2]}` ends the first two tries right after the response to their second one.
From outside nobody can hit the moment between two steps; the kernel's signal is the same.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from airflow_provider_mail._task.progress import STATE_KEY as PROGRESS_KEY


class Fuse:
    """Ends the process at a point: `<where> <how many times>`."""

    def __init__(self, point: str) -> None:
        self._point = point
        self._passed: Counter[str] = Counter()
        self._lock = threading.Lock()

    def at(self, where: str) -> None:
        with self._lock:
            self._passed[where] += 1
            if f"{where} {self._passed[where]}" == self._point:
                os.kill(os.getpid(), signal.SIGKILL)


class WatchedStore:
    """A task state store whose writes and deletions are points, except those of the progress record."""

    def __init__(self, store: Any, fuse: Fuse) -> None:
        self._store, self._fuse = store, fuse

    def get(self, *arguments: Any) -> Any:
        return self._store.get(*arguments)

    def set(self, key: str, *arguments: Any, **options: Any) -> None:
        self._do("write", key, lambda: self._store.set(key, *arguments, **options))

    def delete(self, key: str) -> None:
        self._do("delete", key, lambda: self._store.delete(key))

    def _do(self, name: str, key: str, change: Callable[[], object]) -> None:
        # Only a task that takes longer than half a minute has this record, so counting it would depend on the speed.
        at = self._fuse.at if key != PROGRESS_KEY else lambda where: None
        at(f"before {name}")
        change()
        at(f"after {name}")


class Mortal:
    """Mixin: an operator whose requests, writes to the state store and pushes to XCom are points."""

    def execute(self, context: Any) -> Any:
        fuse = self._arm(context)
        result = super().execute(context)  # type: ignore[misc]
        fuse.at("after execute")
        return result

    def execute_complete(self, context: Any, event: Any = None) -> Any:
        fuse = self._arm(context)
        fuse.at("before complete")
        result = super().execute_complete(context, event)  # type: ignore[misc]
        fuse.at("after complete")
        return result

    def _arm(self, context: Any) -> Fuse:
        conf = context["dag_run"].conf
        fuse = Fuse(conf.get("point", "") if context["ti"].try_number in conf.get("tries", [1]) else "")
        # The process is this task's own, so nothing has to be put back.
        _watch_requests(fuse)
        _watch_pushes(fuse, type(context["ti"]))
        if "task_state_store" in context:
            context["task_state_store"] = WatchedStore(context["task_state_store"], fuse)
        return fuse


def _watch_requests(fuse: Fuse) -> None:
    stream = httpx.Client.stream

    @contextmanager
    def watched(client: httpx.Client, *arguments: Any, **options: Any) -> Iterator[httpx.Response]:
        fuse.at("before request")
        with stream(client, *arguments, **options) as response:
            yield response
        fuse.at("after request")

    httpx.Client.stream = watched  # type: ignore[assignment]


def _watch_pushes(fuse: Fuse, task_instance: Any) -> None:
    push = task_instance.xcom_push

    def watched(ti: Any, *arguments: Any, **options: Any) -> None:
        fuse.at("before push")
        push(ti, *arguments, **options)
        fuse.at("after push")

    task_instance.xcom_push = watched
