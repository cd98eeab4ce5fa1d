"""``mail-emulator``, or ``python -m mail_emulator``: serve the emulator until a signal stops it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path

from mail_emulator.control_api import ControlApi
from mail_emulator.emulator import Emulator
from mail_emulator.settings import EmulatorSettings, from_text

_DEMO_SENDER = "news@example.com"


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT.

    :param arguments: command line. Default: that of the process.
    :return: exit code: 0 after a clean stop, 2 when the emulator cannot start.
    """
    options = _options(arguments)
    if options.list_settings:
        settings_shown = (
            f"{item.name}={json.dumps(item.default)}\n    {item.metadata['meaning']}"
            for item in dataclasses.fields(EmulatorSettings)
        )
        _print("\n".join(settings_shown))
        return 0
    settings = EmulatorSettings()
    try:
        settings.update(dict(map(from_text, options.setting)))
        if options.api_key:
            settings.api_key = options.api_key
        emulator = Emulator(
            settings, file=options.file, host=options.host, port=options.port, forward_smtp=options.forward_smtp
        )
        emulator.start()
    except (ValueError, OSError) as error:
        print(f"The emulator cannot start: {error}", file=sys.stderr)
        return 2
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if options.with_parent:
        threading.Thread(target=_wait_for_parent, args=[stopping], daemon=True).start()
    if options.demo_data:
        add_demo_data(emulator)
    if options.ready_file:
        _write_ready_file(options.ready_file, emulator)
    forwarding = f"It forwards mail to {options.forward_smtp} alone." if options.forward_smtp else "It sends no mail."
    _print(
        f"The emulator serves the email service at {emulator.base_url}\n"
        f"  API key    {emulator.api_key}\n"
        f"  state in   {options.file or 'memory (lost when it stops)'}\n"
        f"  inbox      {emulator.base_url}/\n"
        f"  control    {emulator.base_url}/_emulator\n"
        f"{forwarding} Ctrl-C stops it."
    )
    stopping.wait()
    emulator.stop()
    _print("The emulator has stopped.")
    return 0


def add_demo_data(emulator: ControlApi) -> None:
    """Add senders, lists, templates and past campaigns of a small company; objects of an earlier run are kept."""
    if _DEMO_SENDER not in {sender["entry"] for sender in emulator.senders()}:
        emulator.add_sender(_DEMO_SENDER)
    if "Newsletter" in {contact_list["name"] for contact_list in emulator.lists()}:
        return
    emulator.add_list("Newsletter", count=1000, description="Everybody who asked for it")
    emulator.add_list("Employees", count=25, description="Left out of campaigns")
    emulator.add_subscription("Newsletter")
    emulator.add_template(
        "welcome",
        subject="Welcome, {{name}}",
        content='<p>Hello {{name}},</p><p><a href="https://example.com/start">start here</a></p>',
    )
    today = emulator.clock.now().date()
    emulator.add_campaigns(14, prefix="newsletter", first_day=today - timedelta(days=14))
    later = emulator.clock.now() + timedelta(days=7)
    emulator.add_campaign("spring-sale", send_date=later, subject="The spring sale begins", state="scheduled")


def _print(text: str) -> None:
    """Print to standard output; ignore a reader that has closed it (``| head``)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Discard the buffer, or the interpreter reports an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _port(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: expected 0 to 65535, 0 for a free one")
    return number


def _wait_for_parent(stopping: threading.Event) -> None:
    """Stop when standard input closes, which happens when the parent process ends."""
    while os.read(0, 4096):
        pass
    stopping.set()


def _write_ready_file(path: Path, emulator: Emulator) -> None:
    """Write the file atomically."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(json.dumps({"base_url": emulator.base_url, "api_key": emulator.api_key, "pid": os.getpid()}))
    unfinished.replace(path)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mail-emulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="interface to listen on (%(default)s)")
    parser.add_argument("--port", type=_port, default=8025, help="port to listen on, 0 for a free one (%(default)s)")
    parser.add_argument("--file", type=Path, help="SQLite file that keeps the state; without it, memory")
    parser.add_argument("--api-key", help="API key to accept")
    parser.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="a setting; see --list-settings"
    )
    parser.add_argument("--list-settings", action="store_true", help="show all settings with their defaults")
    parser.add_argument(
        "--forward-smtp", metavar="HOST:PORT", help="SMTP server that gets a copy of each delivered mail"
    )
    parser.add_argument("--ready-file", type=Path, metavar="PATH", help="JSON file to write when the server is ready")
    parser.add_argument("--with-parent", action="store_true", help="stop when standard input ends")
    parser.add_argument("--demo-data", action="store_true", help="start with senders, lists, templates and campaigns")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
