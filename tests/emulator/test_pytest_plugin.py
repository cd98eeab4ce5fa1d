"""The fixture for tests of DAGs."""

from __future__ import annotations

from airflow_provider_mail.hooks.mail import MailHook
from mail_emulator import Emulator


def test_the_connection_leads_to_the_service(mail_emulator: Emulator) -> None:
    mail_emulator.add_list("customers", ["ada@example.com"])
    assert [contact.email for contact in MailHook().iter_contacts("customers")] == ["ada@example.com"]
