"""Every argument of all that users call gets wrong values: no error is another's, and each names the argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_mail.arguments import Brakes, ChangesOnly, Consent, FileFormat, Rejects, Suppress
from airflow_provider_mail.operators.contacts import MailImportContactsOperator
from airflow_provider_mail.send_window import SendWindow
from airflow_provider_mail.transfers.key_ranges import key_ranges
from airflow_provider_mail.triggers.campaigns import MailCampaignEventTrigger
from airflow_provider_mail.utils.staged_send import ab_send, local_time_send, staged_send
from airflow_provider_mail.version_compat import AirflowFailException
from tests.tasks.test_operators import NEEDED

WRONG: list[Any] = [
    object(), 5, -1, 1.5, float("nan"), float("inf"), True, b"x", "", "2h", "see https://x.com/a.html", [], [5], [None],
    {}, {"a": 5}, {5}, datetime(2026, 1, 1, tzinfo=UTC), timedelta(-1), lambda: 1, int,
]  # fmt: skip
"""Each is wrong for most arguments; the first one for all."""


CAMPAIGN = {"subject": "a", "content": "<p>a</p>", "sender_mail": "news@example.com"}
STAGED = {"import_task": None, "mail_name": "a", "campaign": CAMPAIGN}
CALLED: dict[Callable[..., Any], dict[str, Any]] = {
    **{call: {} for call in (Brakes, ChangesOnly, FileFormat, MailCampaignEventTrigger, Rejects, SendWindow)},
    Suppress: {"table": "a"},
    Consent: {"column": "a", "yes": ["1"]},
    key_ranges: {"sql_conn_id": "crm", "sql": "SELECT 1", "key": "1", "ranges": 2},
    staged_send: STAGED | {"stages": {"canary": 0.1, "rest": 1}, "gate": {"max_bounce": 0.1}},
    ab_send: STAGED
    | {"version_a": {"subject": "a"}, "version_b": {"subject": "b"}, "wait": {"max_age": 5}, "compare": {}},
    local_time_send: STAGED | {"send_time": time(9), "time_zone_column": "tz"},
    **NEEDED,
}
"""Everything that takes arguments, with the smallest ones; not `MailNotifier`, which leaves out what it cannot use."""

CHECKED_BY_OTHERS: tuple[tuple[Any, set[str]], ...] = (
    # The arguments of tasks, which these report.
    (staged_send, {"campaign", "gate", "group_id"}),
    (ab_send, {"campaign", "compare", "group_id", "version_a", "version_b", "wait"}),
    (local_time_send, {"campaign", "group_id", "send_day"}),
)


def with_import(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with a task that imports people, which belongs to the DAG, in place of none."""
    if arguments.get("import_task", "") is not None:
        return arguments
    contacts = [{"email": "a@example.com"}]
    task = MailImportContactsOperator(task_id="people", list_name="a", contacts=contacts, exact_audience=True)
    return arguments | {"import_task": task}


def outcome(call: Callable[..., Any], name: str, arguments: dict[str, Any]) -> str:
    """Return what is wrong with how a call ended; ``rejected`` or ``accepted`` if nothing is."""
    try:
        with DAG("wrong", schedule=None):
            call(**with_import(arguments))
    except (ValueError, AirflowFailException) as error:
        return "rejected" if name in str(error) else f"does not name the argument: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


@pytest.mark.parametrize("call", CALLED, ids=lambda call: call.__name__)
def test_a_wrong_value_is_an_error_that_names_the_argument(call: Callable[..., Any], crm: object) -> None:
    needed = CALLED[call] | ({"task_id": "task"} if call in NEEDED else {})
    of_others = next((names for other, names in CHECKED_BY_OTHERS if other is call), set())
    wrong = []
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        values = [value for value in WRONG if not (name in of_others and isinstance(value, dict | str))]
        if call is key_ranges:  # The database reports these.
            values = [value for value in values if not isinstance(value, str | list | tuple | dict | set)]
        ends = [outcome(call, name, needed | {name: value}) for value in values]
        wrong += [f"{name}={value!r}: {end}" for value, end in zip(values, ends, strict=True) if ": " in end]
        if name != "seed":
            assert ends[0] == "rejected", name
    assert wrong == []


@pytest.mark.parametrize("call", [call for call in CALLED if inspect.isclass(call)], ids=lambda call: call.__name__)
def test_a_template_where_nothing_is_rendered_is_wrong(call: Any) -> None:
    """It would be taken as text: for the name of a campaign, or for the value with which people say no."""
    needed = CALLED[call] | ({"task_id": "task"} if call in NEEDED else {})
    names = inspect.signature(call).parameters.keys() - {"kwargs", *getattr(call, "template_fields", ())}
    for name in names:
        for value in ("{{ value }}", ["{{ value }}"]):
            assert outcome(call, name, needed | {name: value}) == "rejected", (name, value)


@pytest.mark.parametrize(("arguments", "cure"), [
    ({"stages": {"canary": 1, "rest": 99}}, "rest: the stage before it has the share 1 already, and nobody is left"),
    ({"stages": ["canary", "rest"]}, 'a dictionary with a stage is needed, not list. Write {"canary": 0.01, '),
    ({"ramp": [1]}, "stages, ramp: give one of them"),
    ({"stages": None}, "stages, ramp: give one of them"),
    ({"stages": None, "ramp": [2_000, 500]}, "ramp: day 2 has 500 people, fewer than the day before: a ramp goes up"),
    ({"gate": None}, "gate: a dictionary is needed, such as gate={"),
])  # fmt: skip
def test_how_to_write_it_right(arguments: dict[str, Any], cure: str) -> None:
    with DAG("wrong", schedule=None), pytest.raises(ValueError) as raised:  # noqa: PT011 - compared below
        staged_send(**with_import(CALLED[staged_send] | arguments))
    assert cure in str(raised.value)
