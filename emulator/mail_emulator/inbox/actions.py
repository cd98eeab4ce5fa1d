"""What the buttons of the pages do: functions of the control interface, with the values of a form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mail_emulator import codec

if TYPE_CHECKING:
    from mail_emulator.control_api import ControlApi

Form = Mapping[str, str]


def _advance(controls: ControlApi, form: Form) -> None:
    controls.clock.advance(float(form["seconds"]))


def _run(controls: ControlApi, form: Form) -> None:
    controls.clock.run(float(form["rate"]))


def _real_time(controls: ControlApi, form: Form) -> None:
    controls.clock.set(datetime.now(UTC))
    controls.clock.run()


def _react(controls: ControlApi, form: Form) -> None:
    controls.inbox.react(form["mail"], form["code"])


def _react_to_campaign(controls: ControlApi, form: Form) -> None:
    controls.inbox.react_to_campaign(form["mail_name"], form["code"], int(form["people"]))


def _add_fault(controls: ControlApi, form: Form) -> None:
    count = form.get("count", "1")
    params = {name.removeprefix("param_"): text for name, text in form.items() if name.startswith("param_")}
    controls.faults.add(
        form["kind"],
        form["operation"],
        count=int(count) if count else None,
        skip=int(form.get("skip") or 0),
        **{name: _value(text) for name, text in params.items()},
    )


def _value(text: str) -> Any:
    """Return the JSON value that was entered, or else the text."""
    try:
        return codec.decode(text)
    except ValueError:
        return text


def _remove_fault(controls: ControlApi, form: Form) -> None:
    controls.faults.remove(int(form["fault"]))


def _clear_faults(controls: ControlApi, form: Form) -> None:
    controls.faults.clear()


def _clear_requests(controls: ControlApi, form: Form) -> None:
    controls.journal.clear()


ACTIONS: Mapping[str, Callable[[ControlApi, Form], None]] = {
    "advance": _advance,
    "run": _run,
    "real-time": _real_time,
    "react": _react,
    "react-to-campaign": _react_to_campaign,
    "add-fault": _add_fault,
    "remove-fault": _remove_fault,
    "clear-faults": _clear_faults,
    "clear-requests": _clear_requests,
}
