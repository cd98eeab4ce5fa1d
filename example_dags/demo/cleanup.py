"""End the demo's processes and remove its folder after the demo has ended, also when it was killed.

Runs as ``python cleanup.py FOLDER`` in a session of its own, where neither Ctrl-C nor the end of the terminal reaches
it. A line of standard input is the id of a process that leads a session, negative when it has ended in order. The end
of standard input is the end of the demo: the kernel closes it also when the demo is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress

import psutil

GRACE_SECONDS = 5.0


def main() -> None:
    folder = sys.argv[1]
    leaders: set[int] = set()
    for line in sys.stdin:
        number = int(line)
        leaders.add(number) if number > 0 else leaders.discard(-number)
    for leader in leaders:
        with suppress(ProcessLookupError):
            os.kill(leader, signal.SIGTERM)
    wait_for_end(leaders, GRACE_SECONDS)
    for process in members(leaders):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait_for_end(leaders, GRACE_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def wait_for_end(leaders: Collection[int], seconds: float) -> None:
    """Wait until all processes of sessions have ended.

    :param leaders: process ids of the sessions.
    """
    deadline = time.monotonic() + seconds
    while next(members(leaders), None) and time.monotonic() < deadline:
        time.sleep(0.1)


def members(leaders: Collection[int]) -> Iterator[psutil.Process]:
    """Return the running processes of these sessions, also orphans."""
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(process.pid) in leaders and process.status() != psutil.STATUS_ZOMBIE:
                yield process


if __name__ == "__main__":
    main()
