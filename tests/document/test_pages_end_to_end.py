"""Page sizes and page numbers of the specification, as the service counts them and as our client reads them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from airflow_provider_mail.api import GetCampaigns, GetListContacts, GetLists, GetTemplates, MailClient
from airflow_provider_mail.api.errors import MailRejectedError
from mail_emulator import Emulator
from tests.document.fact_rows import LIMITS
from tests.document.models import unchecked

ROWS = {row.item: row.value for row in LIMITS}
DEFAULT, MOST = ROWS["contacts/list/get pageSize"]
(SMALL,) = ROWS["pageSize default, campaign get, templates get, lists get"]


def test_contacts_come_200_a_page_and_1000_at_most(emulator: Emulator, client: MailClient):
    emulator.add_list("customers", count=MOST + 1)
    first = client.send(GetListContacts(list_name="customers"))
    assert (len(first.records), first.total_records) == (DEFAULT, MOST + 1)
    assert first.records == client.send(GetListContacts(list_name="customers", page_index=1)).records
    assert len(client.send(GetListContacts(list_name="customers", page_size=MOST)).records) == MOST
    emulator.settings.oversized_page = "reject"
    with pytest.raises(MailRejectedError):
        client.send(unchecked("contacts.list.get", {"listName": "customers", "pageSize": MOST + 1}))


@pytest.mark.parametrize(
    "request_class", [GetCampaigns, GetTemplates, GetLists], ids=["campaigns.get", "templates.get", "lists.get"]
)
def test_everything_else_comes_10_a_page(request_class: Any, emulator: Emulator, client: MailClient):
    emulator.add_campaigns(SMALL + 2, first_day=date(2026, 1, 1))
    for number in range(SMALL + 2):
        emulator.add_list(f"list {number}")
        emulator.add_template(f"template {number}", subject="Hello", content="<p>Hello</p>")
    first, same, second = (client.send(request_class(**at)) for at in ({}, {"page_index": 1}, {"page_index": 2}))
    assert (len(first.records), len(second.records), first.total_records) == (SMALL, 2, SMALL + 2)
    assert first.records == same.records
    read = [first.identity(record) for page in client.pages(request_class()) for record in page]
    assert read == [first.identity(record) for record in (*first.records, *second.records)]
    assert len(set(read)) == SMALL + 2
