"""It holds a million contacts (with MAIL_ALL_CASES=1)."""

from __future__ import annotations

import http.client
import json

import pytest

from airflow_provider_mail.emulator import EmulatorProcess
from tests.emulator.conftest import IMPORT_MAPPING
from tests.support.sampling import EVERYTHING

pytestmark = pytest.mark.not_unit

ROWS = 5000


@pytest.mark.parametrize("total", [50_000, *([1_000_000] if EVERYTHING else [])])
def test_imports_pages_and_a_campaign(total: int) -> None:
    with EmulatorProcess() as emulator:
        emulator.add_sender("news@example.com")
        connection = http.client.HTTPConnection(emulator.base_url.removeprefix("http://"))
        headers = {"ApiKey": emulator.api_key, "Content-Type": "application/json"}

        def post(operation: str, **body: object) -> dict[str, object]:
            connection.request("POST", f"/v5/{operation}", json.dumps(body), headers)
            answer = json.loads(connection.getresponse().read())
            assert answer["code"] == 200, answer
            return answer

        for start in range(0, total, ROWS):
            post(
                "contacts/imports",
                contactData=[[f"user{number}@example.com", f"Name {number}"] for number in range(start, start + ROWS)],
                contactDataMapping=IMPORT_MAPPING,
                updateMode=1,
                listName="Everybody",
            )
        assert emulator.contact_count("Everybody") == total
        last = post("contacts/list/get", listName="Everybody", pageSize=1000, pageIndex=total // 1000)
        assert last["totalRecords"] == total
        assert last["contactList"][-1]["email"] == f"user{total - 1}@example.com"
        post("campaign/mail/sends", mailName="m", senderMail="news@example.com", sendListNames=["Everybody"])
        emulator.clock.advance(days=1)
        (task,) = post("campaign/mail/get", mailName="m")["mailList"]
        assert task["mailStats"]["sentCount"] == total
        connection.close()
