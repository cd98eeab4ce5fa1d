"""The customers get the newsletter once, and a lost response mails nobody twice."""

import pytest
from dags.newsletter import dag

from mail_emulator import Emulator


@pytest.fixture(autouse=True)
def _customers(mail_emulator: Emulator) -> None:
    mail_emulator.add_sender("news@example.com")
    mail_emulator.add_list("customers", ["ada@example.com", "grace@example.com"])


def test_the_newsletter_goes_out(mail_emulator: Emulator) -> None:
    dag.test()
    (campaign,) = mail_emulator.campaigns()
    assert campaign["request"]["subject"] == "What is new"
    assert len(mail_emulator.mails_to("ada@example.com")) == 1


def test_a_lost_response_mails_nobody_twice(mail_emulator: Emulator) -> None:
    mail_emulator.faults.add("close_after", operation="/v5/campaign/mail/sends")
    dag.test()
    assert len(mail_emulator.campaigns()) == 1
