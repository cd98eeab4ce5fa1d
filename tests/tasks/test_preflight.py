"""`MailPreflightOperator`: what is wrong is found before anybody is mailed, shown, and judged as it was asked to be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_mail.operators.preflight import MailPreflightOperator
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sending import CAMPAIGN

READS = {f"/v5/{path}/get" for path in ("campaign/mail", "contacts/list", "lists", "verified_senders")}
"""What the document says only reads."""

MINE: dict[str, Any] = CAMPAIGN | {
    "subject": "Spring, {% raw %}{{name}}{% endraw %}",
    "content": "<p>It is here. <a href='{% raw %}{{link}}{% endraw %}'>Unsubscribe</a></p>",
    "send_list_names": ["newsletter", "vip"],
    "repel_list_names": ["staff"],
    "attachment": {"file_name": "a.txt", "file_data": "QUJD"},
    "language_code": "de",
}


@pytest.fixture(autouse=True)
def _lists(emulator: Emulator) -> None:
    emulator.add_list("newsletter", ["ada@example.com", "bob@example.com"])
    emulator.add_list("vip", ["ada@example.com"])
    emulator.add_list("staff")


def look(**arguments: Any) -> MailPreflightOperator:
    return MailPreflightOperator(**{"task_id": TASK, "retries": 2, "known_tags": ["name", "link"]} | MINE | arguments)


def assert_nothing_changed(emulator: Emulator) -> None:
    entries = emulator.journal.entries()
    for entry in entries:
        sandboxed = entry["operation"] == "/v5/campaign/mail/sends" and entry["body"]["sandboxMode"] is True
        assert entry["operation"] in READS or (sandboxed and not entry["processed"]), entry["operation"]
    assert emulator.campaigns() == emulator.messages() == []


def test_a_good_campaign(run: Run, emulator: Emulator, connect: Connect) -> None:
    connect(sandbox=True)
    done = run(lambda: look(max_recipients=3))

    assert done.state == "success", done.log
    returned = done.returned
    assert [returned[name] for name in ("mail_name", "errors", "warnings", "recipients")] == ["spring", 0, 0, 3]
    checks = ["sender", "lists", "lists", "excluded lists", "recipients", "size", "size", "unsubscribe", "tags"]
    findings = [(finding["level"], finding["check"]) for finding in returned["findings"]]
    assert findings == [("ok", name) for name in [*checks, "service"]]
    assert [line for line in returned["table"].splitlines() if line not in done.log] == []
    assert "Campaign 'spring': 0 errors, 0 warnings; nothing was changed." in done.log
    assert_nothing_changed(emulator)


@pytest.mark.parametrize(
    ("arguments", "fail_on", "expected"),
    [
        ({}, "warning", (0, 0)),
        ({"send_list_names": ["nobody"]}, "error", "lists: there is no list 'nobody'"),
        ({"max_recipients": "{{ 1 + 1 }}"}, "error", "recipients: 3 contacts in the target lists; max_recipients is 2"),
        ({"subject": None, "allow_blank": True}, "error", (0, 1)),
        ({"subject": None, "allow_blank": True}, "warning", "subject: there is none"),
        ({"subject": None, "allow_blank": True, "send_list_names": ["nobody"]}, "never", (2, 1)),
        # The templates are text until they are rendered, and may stay so.
        ({"max_growth": "{{ 1.4 }}", "compare_with": "spring {{ '' }}"}, "never", (1, 0)),
        ({"max_growth": 1.5, "compare_with": "spring "}, "warning", (0, 0)),
    ],
)
def test_what_fails_the_task_is_chosen(
    run: Run, emulator: Emulator, arguments: dict[str, Any], fail_on: str, expected: Any
) -> None:
    emulator.add_campaign("spring 2025", sent=2, send_date="2025-03-01T09:00:00Z")

    done = run(lambda: look(fail_on=fail_on, **arguments))

    if isinstance(expected, str):
        assert (done.state, done.tries) == ("failed", 1)
        assert "campaign 'spring' should not go out: " in done.log
        assert expected in done.log
    else:
        assert (done.state, done.returned["errors"], done.returned["warnings"]) == ("success", *expected)


def test_findings_hold_no_addresses_of_people(run: Run, emulator: Emulator) -> None:
    said = "planted-one@example.com is on holiday"
    emulator.faults.add("code_before", "campaign/mail/sends", code=403, message=said, http_status=200)

    done = run(lambda: look(sender_mail="promo@example.com", fail_on="never"))

    assert "promo@example.com is not a sender" in done.returned["table"]
    assert "*** is on holiday" in done.returned["table"]
    pushed = json.dumps([*done.result.xcoms().values()])
    assert [place for place in (pushed, done.log) if "planted" in place or "ada@" in place] == []
