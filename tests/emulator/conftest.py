"""A plain HTTP client for the emulator: these tests know the document and no client of this project."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from airflow_provider_mail.emulator import Emulator

#: Building one takes longer than most of these tests.
TLS = ssl.create_default_context()
IMPORT_MAPPING = [{"columnNum": 0, "propertyName": "email"}, {"columnNum": 1, "propertyName": "name"}]


class Api:
    """``api("contacts/get", email="a@example.com")`` posts to ``/v5/contacts/get`` and gives the JSON answer."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.http = self.client({"ApiKey": emulator.api_key})
        #: Without credentials.
        self.stranger = self.client({})

    def client(self, headers: dict[str, str]) -> httpx.Client:
        return httpx.Client(base_url=self.emulator.base_url, headers=headers, verify=TLS, trust_env=False, timeout=60)

    def close(self) -> None:
        self.http.close()
        self.stranger.close()

    def post(self, operation: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/v5/{operation}", json=body)

    def __call__(self, operation: str, **body: Any) -> dict[str, Any]:
        return self.post(operation, **body).json()

    def ok(self, operation: str, **body: Any) -> dict[str, Any]:
        answer = self(operation, **body)
        assert answer["code"] == 200, answer
        return answer

    def refused(self, code: int, operation: str, **body: Any) -> str:
        """The message of an answer that must have this code, and must have changed nothing."""
        response = self.post(operation, **body)
        assert response.status_code == 200
        answer = response.json()
        assert answer["code"] == code, answer
        assert isinstance(answer["message"], str)
        assert not self.emulator.journal.entries()[-1]["processed"]
        return answer["message"]

    def import_contacts(self, rows: list[list[Any]], mode: int = 1, **body: Any) -> dict[str, Any]:
        return self("contacts/imports", contactData=rows, contactDataMapping=IMPORT_MAPPING, updateMode=mode, **body)

    def campaign(self, name: str, **body: Any) -> dict[str, Any]:
        """Create a task to the list "Readers", which is made when it is missing."""
        if not body.get("onlySave") and "sendListNames" not in body:
            if not any(found["name"] == "Readers" for found in self.emulator.lists()):
                self.emulator.add_list("Readers", count=10)
            body["sendListNames"] = ["Readers"]
        return self("campaign/mail/sends", mailName=name, senderMail="news@example.com", **body)

    def status(self, name: str) -> int | None:
        """mailStatus of the task of exactly this name as campaign get shows it; None when it shows none."""
        found = self.ok("campaign/mail/get", mailName=name, pageSize=1000)["mailList"]
        return next((task["mailStatus"] for task in found if task["mailName"] == name), None)


@pytest.fixture
def api(emulator: Emulator) -> Iterator[Api]:
    client = Api(emulator)
    yield client
    client.close()
