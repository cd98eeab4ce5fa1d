"""A plain HTTP client for the emulator: these tests know the specification and no client of this project."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mail_emulator import Emulator
from tests.support.serving import Handler, Server

TLS = ssl.create_default_context()
"""One for all: creating it takes longer than most of these tests."""

IMPORT_MAPPING = [{"columnNum": 0, "propertyName": "email"}, {"columnNum": 1, "propertyName": "name"}]
SEND = "transactional/mail/sends_customised"
LETTER: dict[str, Any] = {"subject": "Your order", "content": "<p>Thanks</p>", "senderMail": "news@example.com"}
SINGLE = LETTER | {"to": {"email": "ann@example.com", "name": "Ann"}}
EVENTS = dict.fromkeys(("dropped", "bounced", "delivered", "spamReport", "opened", "clicked", "unsubscribed"), True)


def version(**changes: Any) -> dict[str, Any]:
    """One message of the batch form."""
    return {"to": [{"email": "ann@example.com"}], "cc": [], "bcc": [], **changes}


def batch(*versions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The batch form; of one message unless several are given."""
    return LETTER | {"messageVersions": list(versions) or [version()]} | changes


BATCH = batch()


class Api:
    """``api("contacts/get", email="a@example.com")`` posts to ``/v5/contacts/get`` and returns the JSON response."""

    def __init__(self, emulator: Emulator) -> None:
        self.emulator = emulator
        self.http = self.client({"ApiKey": emulator.api_key})
        #: Without credentials.
        self.stranger = self.client({})

    def client(self, headers: dict[str, str]) -> httpx.Client:
        return httpx.Client(base_url=self.emulator.base_url, headers=headers, verify=TLS, trust_env=False, timeout=600)

    def close(self) -> None:
        self.http.close()
        self.stranger.close()

    def post(self, operation: str, **body: Any) -> httpx.Response:
        return self.http.post(f"/v5/{operation}", json=body)

    def __call__(self, operation: str, **body: Any) -> dict[str, Any]:
        return self.post(operation, **body).json()

    def ok(self, operation: str, **body: Any) -> dict[str, Any]:
        response = self(operation, **body)
        assert response["code"] == 200, response
        return response

    def rejected(self, code: int, operation: str, words: str = "", **body: Any) -> str:
        """Return the message of a response that must have this code and these words, and must have changed nothing."""
        http = self.post(operation, **body)
        response = http.json()
        assert (http.status_code, response["code"]) == (200, code), response
        assert words in response["message"]
        assert not self.emulator.journal.entries()[-1]["processed"]
        return str(response["message"])

    def import_contacts(self, rows: Any, mode: Any = 1, **body: Any) -> dict[str, Any]:
        fields = {"contactData": rows, "contactDataMapping": IMPORT_MAPPING, "updateMode": mode}
        return self("contacts/imports", **fields | body)

    def campaign(self, name: str, **body: Any) -> dict[str, Any]:
        """Create a task to the list "Readers", which is created when it is missing."""
        if not (body.get("onlySave") or "sendListNames" in body or self.emulator.contact_count("Readers")):
            self.emulator.add_list("Readers", count=10)
        fields = {"mailName": name, "senderMail": "news@example.com", "sendListNames": ["Readers"]}
        return self("campaign/mail/sends", **fields | body)

    def status(self, name: str) -> int | None:
        """mailStatus of the task of exactly this name as campaign get shows it; None when it shows none."""
        tasks = self.ok("campaign/mail/get", mailName=name, pageSize=1000)["mailList"]
        return next((task["mailStatus"] for task in tasks if task["mailName"] == name), None)

    def send(self, count: int = 1, **body: Any) -> None:
        """Send tracked mail to 0@example.com and so on, each a message of one batch."""
        versions = [version(to=[{"email": f"{number}@example.com"}]) for number in range(count)]
        self.ok(SEND, **batch(*versions, **{"trackOpen": 1, "trackClick": 1} | body))

    def flush(self) -> None:
        """Wait until every due event was pushed or given up."""
        self.emulator.flush_events(timeout=600)


class Listener(Server):
    """A real HTTP listener: keeps every push with its path and headers; `statuses` are those of the next responses."""

    def __init__(self) -> None:
        self.pushes: list[tuple[str, dict[str, str], list[dict[str, Any]]]] = []
        self.statuses: list[int] = []
        self.pushed = threading.Event()
        listener = self

        class Keeping(Handler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                listener.pushes.append((self.path, headers, json.loads(body)))
                self.send_response(listener.statuses.pop(0) if listener.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                listener.pushed.set()

        super().__init__(Keeping)

    def events(self, path: str | None = None) -> list[dict[str, Any]]:
        return [event for pushed_to, _, events in self.pushes if path in (None, pushed_to) for event in events]

    def codes(self) -> list[str]:
        return [event["EventCode"] for event in self.events()]


@pytest.fixture
def api(emulator: Emulator) -> Iterator[Api]:
    client = Api(emulator)
    yield client
    client.close()


@pytest.fixture
def listener(api: Api) -> Iterator[Listener]:
    """Receives every event, by `Api.flush`."""
    with Listener() as running:
        api.emulator.change_settings(webhook_interval_seconds=0.005)
        api.ok("webhook/save", transCallbackUrl=f"{running.base_url}/all", transEnable=True, transEvent=EVENTS)
        yield running


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the server makes, in seconds; they end at once."""
    sleep, made = asyncio.sleep, []

    async def pause(seconds: float) -> None:
        if seconds:
            made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", pause)
    return made
