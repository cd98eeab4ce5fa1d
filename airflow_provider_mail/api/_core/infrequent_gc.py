"""Run the garbage collector less often while many records are processed."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLD = 20_000
_lock = threading.Lock()
_users = 0
_before = 0


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Run the garbage collector less often during a load or an import.

    Its many small objects trigger hundreds of collections, and those that traverse all of Airflow's objects take a
    third of the processor's time. With this threshold a page or chunk is freed before a collection; reference cycles
    are still found. The threshold is global: the first user raises it, the last one restores it unless other code has
    changed it.
    """
    global _users, _before
    with _lock:
        _users += 1
        if _users == 1:
            _before = gc.get_threshold()[0]
            if 0 < _before < _THRESHOLD:  # 0: the collector is off
                gc.set_threshold(_THRESHOLD)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and gc.get_threshold()[0] == _THRESHOLD:
                gc.set_threshold(_before)
