"""Something happens in the service while a task waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_mail.emulator import Emulator


@contextmanager
def as_soon_as(look: Callable[[], Any], change: Callable[[], Any]) -> Iterator[None]:
    """Change something when there is something to see, while the body runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if look():
                change()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def answered(emulator: Emulator, operation: str | None = None) -> int:
    """Return how many requests the service has answered; one that it only received may still see what changes."""
    return sum(entry["answered"] for entry in emulator.journal.entries(operation))
