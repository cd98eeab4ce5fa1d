"""Pushes as the service sends them."""

from __future__ import annotations

import json
import random

EVENTS = 1000
_NUMBER = b"99999999"


def _event(number: int) -> dict[str, str]:
    chance = random.Random(number)  # what differs between mails cannot be compressed
    return {
        "EventCode": ("Delivered", "Opened", "Clicked", "Bounced")[number % 4],
        "Email": f"{chance.randbytes(5).hex()}@{chance.choice('abcdefgh')}.example",
        "EventType": "1",
        "SenderEmail": "news@example.com",
        "SentMailListName": "customers",
        "SubmitDateTimeV2": "2026-11-22T09:00:00Z",
        "TriggeredDateTimeV2": f"2026-11-22T10:{chance.randrange(60):02}:{chance.randrange(60):02}Z",
        "UniqueMsgID": f"{chance.randbytes(8).hex()}-{_NUMBER.decode()}-{number:04}",
        "ReceiveServer": "mx.customers.example",
        "Guid": "0b8f1f0e5d5f4d6fa2b9e5d7c1a3f4e6",
        "MailName": "spring 2026",
        "IP": f"192.0.2.{chance.randrange(256)}",
        "Platform": "iOS",
        "BrowserType": "Mobile Safari",
    }


_BODY = json.dumps([_event(number) for number in range(EVENTS)]).encode()


def body(number: int) -> bytes:
    """Return a push of 1,000 events that no other push has."""
    return _BODY.replace(_NUMBER, b"%08d" % number)
