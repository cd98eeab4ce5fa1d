"""What a request is on the wire. (``tests/document`` compares every model with the specification, field by field.)"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_provider_mail import api
from mail_emulator import Emulator
from tests.api.driving import Driver
from tests.api.parts import MailRequest

ADA, NEWS, BLANK = "ada@example.com", "news@example.com", " \u200b\u00a0"
# Beside the examples of `tests/document`: blank names, what is absent, empty and false, and a time of another zone.
BODIES: list[tuple[MailRequest[Any], dict[str, Any]]] = [
    (
        api.SendMail(
            sender_mail=NEWS, sender_name=BLANK, to=api.Recipient(email=ADA, name=BLANK), subject="a", content="b"
        ),
        {"senderMail": NEWS, "to": {"email": ADA}, "subject": "a", "content": "b"},
    ),
    (api.UpsertContact(phone_number="+49 1", name=None), {"phoneNumber": "+49 1"}),
    (api.GetCampaigns(mail_status=[-1, 4], all_team=False), {"mailStatus": [-1, 4], "allTeam": False}),
    (
        api.CreateCampaign(
            mail_name="Grüße 新闻", sender_mail=NEWS, sender_name=BLANK, only_save=True, repel_list_names=[],
            send_date=datetime(2026, 1, 31, 9, 0, 0, 999_999, timezone(timedelta(hours=2))),
        ),
        {"mailName": "Grüße 新闻", "senderMail": NEWS, "onlySave": True, "sendDate": "2026-01-31T07:00:00Z",
         "repelListNames": []},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "body"), BODIES, ids=lambda request: type(request).__name__)
def test_the_service_receives_the_names_of_the_specification(
    request_: MailRequest[Any], body: dict[str, Any], emulator: Emulator, client: Driver
) -> None:
    client.send(request_)
    (entry,) = emulator.journal.entries()
    assert (entry["body"], entry["operation"], entry["method"]) == (body, request_.path, "POST")


def test_the_token_exchange_is_sent_in_the_query(emulator: Emulator, client: Driver) -> None:
    """Once a code `c%20` arrived as `c ` with the oldest httpx."""
    with pytest.raises(api.MailError, match="oauth/token"):
        client.send(api.GetToken(client_id="emulator-client", client_secret="a&b c+d", code="c%20"))
    (entry,) = emulator.journal.entries()
    query = {"grant_type": "authorization_code", "client_id": "emulator-client"}
    assert (entry["method"], entry["body"]) == ("GET", {**query, "client_secret": "a&b c+d", "code": "c%20"})
    assert not {"apikey", "oauth"} & entry["headers"].keys()


def test_a_mistake_names_every_field_and_shows_no_value() -> None:
    with pytest.raises(api.MailValidationError) as raised:
        api.CreateCampaign(mail_name="", sender_mail="secret", send_date=datetime(2026, 1, 1), contnet="x")
    text = str(raised.value)
    assert all(field in text for field in ("mail_name", "sender_mail", "send_date", "contnet"))
    assert ("secret" in text, raised.value.operation) == (False, "/v5/campaign/mail/sends")
    with pytest.raises(Exception, match="frozen"):
        api.UpsertContact(email=ADA).email = "else@example.com"  # type: ignore[misc]
