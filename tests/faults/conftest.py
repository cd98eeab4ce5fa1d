"""A connection to the emulator, and time that passes at once."""

from tests.machines.conftest import _mail_default, _quiet

__all__ = ["_mail_default", "_quiet"]
