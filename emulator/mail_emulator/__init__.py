"""An emulator of the service: every operation of the specification, with a movable clock and faults on demand.

``with Emulator() as emulator:`` serves it from this process, ``EmulatorProcess`` runs it as a subprocess, and
``python -m mail_emulator`` runs it from the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mail_emulator.settings import EmulatorSettings

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mail_emulator.client import EmulatorClient, EmulatorProcess
    from mail_emulator.emulator import Emulator

__all__ = ["Emulator", "EmulatorClient", "EmulatorProcess", "EmulatorSettings"]


def __getattr__(name: str) -> object:
    # The command does not need the client, nor the client the server; each starts faster without the other.
    if name == "Emulator":
        from mail_emulator.emulator import Emulator

        return Emulator
    if name in ("EmulatorClient", "EmulatorProcess"):
        from mail_emulator import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
