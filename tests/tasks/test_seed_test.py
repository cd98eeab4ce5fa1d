"""`MailSendTestOperator`: the same campaign, to a few people, and to nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mail.operators.seed_test import MailSendTestOperator
from mail_emulator import Emulator
from tests.tasks.conftest import TASK, Connect, Run
from tests.tasks.sending import AT_ONCE, CAMPAIGN, campaign

CREATES = "campaign/mail/sends"
CONTENT = {name: value for name, value in CAMPAIGN.items() if name != "send_list_names"}


@pytest.fixture(autouse=True)
def _lists(emulator: Emulator) -> None:
    emulator.add_list("newsletter", count=60)
    emulator.add_list("staff", ["ida@example.com", "kim@example.com"])


def seed_test(**arguments: Any) -> MailSendTestOperator:
    return MailSendTestOperator(**{"task_id": TASK, "seed_list_names": "staff"} | CONTENT | AT_ONCE | arguments)


def test_it_has_the_same_content_and_is_linked(run: Run, emulator: Emulator, connect: Connect) -> None:
    connect(campaign_url="https://app.example.com/{mail_name}")

    def make() -> None:
        seed_test() >> campaign(task_id="everybody", reply_to=None)

    done = run(make)
    assert done.result.state == "success", done.log
    test, everybody = (entry["body"] for entry in emulator.journal.entries(CREATES))
    assert test == everybody | {"mailName": "spring (test)", "sendListNames": ["staff"]}
    assert len(emulator.campaign_recipients("spring (test)")) == 2
    assert done.returned["mail_stats"]["sent_count"] == 2
    assert done.result.xcom(TASK, "mail_campaign_url") == "https://app.example.com/spring%20%28test%29"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"seed_list_names": ["newsletter", "staff"]}, "62 contacts, max_seeds is 50"),
        ({"seed_list_names": "nobody"}, "seed_list_names: nobody: "),
        ({"mail_name": "a" * 195}, "mail_name: "),
    ],
)
def test_what_is_not_sent(run: Run, emulator: Emulator, arguments: dict[str, Any], problem: str) -> None:
    done = run(lambda: seed_test(**arguments))
    assert (done.state, emulator.journal.count(CREATES)) == ("failed", 0)
    assert problem in done.log


def test_a_retry_sends_no_second_one(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("close_after", CREATES)
    assert run(lambda: seed_test(mail_name=None)).state == "success"
    assert len(emulator.campaigns()) == 1
