"""A DAG, and its tests: the customers get the newsletter once, and a lost response mails nobody twice."""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG

from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator
from mail_emulator import Emulator


def newsletter() -> DAG:
    with DAG("newsletter_under_test", start_date=pendulum.datetime(2026, 1, 1), schedule=None) as dag:
        MailCreateCampaignOperator(
            task_id="campaign",
            sender_mail="news@example.com",
            subject="What is new",
            content="<p>Hello</p>",
            send_list_names=["customers"],
        )
    return dag


def prepare(mail_emulator: Emulator) -> None:
    mail_emulator.add_sender("news@example.com")
    mail_emulator.add_list("customers", ["ada@example.com", "grace@example.com"])


def test_the_newsletter_goes_out(mail_emulator: Emulator) -> None:
    prepare(mail_emulator)
    newsletter().test()
    (campaign,) = mail_emulator.campaigns()
    assert campaign["subject"] == "What is new"
    assert len(mail_emulator.mails_to("ada@example.com")) == 1


def test_a_lost_response_mails_nobody_twice(mail_emulator: Emulator) -> None:
    prepare(mail_emulator)
    mail_emulator.faults.add("close_after", operation="/v5/campaign/mail/sends")
    newsletter().test()
    assert len(mail_emulator.campaigns()) == 1
