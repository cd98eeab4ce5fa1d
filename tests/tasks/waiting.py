"""Something happens in the service while a task waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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
