"""``airflow mail receive rotate`` at the emulator, which pushes meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest

from airflow_provider_mail.__main__ import main
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.transactional import Recipient, SendMail
from airflow_provider_mail.api.webhooks import EventToggles, GetWebhook, GetWebhookResponse, SaveWebhook, SenderCallback
from airflow_provider_mail.cli import receive
from airflow_provider_mail.emulator import Emulator
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import Tokens, new_token, token_digest, token_of, with_token
from tests.support.postgres import PostgresServer
from tests.support.processes import wait_until
from tests.webhook.running import RunningReceiver

pytestmark = pytest.mark.not_unit

SENDERS = ("news@example.com", "shop@other.example", "foreign@other.example")
FOREIGN = "https://elsewhere.example/hook/abc"

Rotate = Callable[..., str]


@pytest.fixture
def client(emulator: Emulator) -> Iterator[MailClient]:
    with MailClient(ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)) as client:
        yield client


@pytest.fixture
def rotate(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], airflow_home: object
) -> Rotate:
    """Runs the command, and returns what it printed; pushes of this test may go to any inbox."""
    connection = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "client")

    def run(*arguments: str) -> str:
        capfd.readouterr()
        main(["receive", "rotate", *arguments])
        return capfd.readouterr().out

    return run


@pytest.fixture
def own_inbox(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> Tokens:
    """An inbox without a receiver, so that nobody has to learn of a new token."""
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    monkeypatch.setenv("AIRFLOW__MAIL__RECEIVE_URL", "https://airflow.example.com/base/mail-events/")
    monkeypatch.setattr(receive, "SPREAD_SECONDS", 0)
    return Tokens(inbox)


def saved_token(client: MailClient) -> str:
    return token_of(client.send(GetWebhook()).trans_callback_url or "")


def test_no_push_is_lost(
    emulator: Emulator,
    client: MailClient,
    rotate: Rotate,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emulator.add_sender(SENDERS[1])
    emulator.settings.webhook_retries = 0
    # Of as many mails as a fast machine sends, some would bounce.
    emulator.settings.hard_bounce_rate = emulator.settings.soft_bounce_rate = 0.0
    folder = tmp_path_factory.mktemp("receiver")
    with (
        postgres_server.database() as database,
        RunningReceiver(folder, database.airflow_connection) as receiver,
    ):
        monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", receiver.conn_id)
        before = configure(client, f"{receiver.url}/{receiver.token}")
        with sending(client) as sent:
            printed = rotate("--grace-hours", "0")
            # Two senders have pushed before and after.
            wait_until(lambda: len({push["url"] for push in emulator.pushes()}) == 4, what="pushes to the new URLs")
        emulator.flush_events()

        pushes = emulator.pushes()
        assert {push["status"] for push in pushes} == {200}
        received = [event["UniqueMsgID"] for body in receiver.bodies() for event in json.loads(body)]
        assert sorted(received) == sorted(sent)
        after = client.send(GetWebhook())
        assert (after.trans_event, after.trans_enable) == (before.trans_event, before.trans_enable)
        new = token_of(after.trans_callback_url or "")
        assert new != receiver.token
        assert {each.sender: each.url for each in after.callbacks} == {
            SENDERS[1]: f"{receiver.url}/shop/{new}",
            SENDERS[2]: FOREIGN,
        }
        assert receiver.tokens.valid() == {token_digest(new): "mail_default"}
        log = receiver.log.read_text()
    assert "Saved: trans_callback_url, trans_callback_url_extra." in printed
    assert receiver.token not in printed + log
    assert new not in printed + log


def configure(client: MailClient, url: str) -> GetWebhookResponse:
    overrides = {SENDERS[1]: with_token(url, f"shop/{token_of(url)}"), SENDERS[2]: FOREIGN}
    client.send(
        SaveWebhook(
            trans_callback_url=url,
            trans_callback_url_extra=[SenderCallback(sender=sender, url=to) for sender, to in overrides.items()],
            trans_event=EventToggles(delivered=True, opened=False),
            trans_enable=True,
        )
    )
    return client.send(GetWebhook())


@contextmanager
def sending(client: MailClient) -> Iterator[list[str]]:
    """Send mails meanwhile; yields the ids of all."""
    sent: list[str] = []
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.02):
            sent.append(f"message-{len(sent)}")
            recipient = Recipient(email=f"reader{len(sent)}@planted.example")
            sender = SENDERS[len(sent) % 2]
            client.send(
                SendMail(sender_mail=sender, unique_msg_id=sent[-1], subject="Hi", content="<p>Hi</p>", to=recipient)
            )

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def test_the_first_token(client: MailClient, rotate: Rotate, own_inbox: Tokens) -> None:
    printed = rotate()
    saved = client.send(GetWebhook())
    assert (saved.trans_callback_url or "").startswith("https://airflow.example.com/base/mail-events/")
    assert saved.trans_enable is None
    assert "The service pushes nothing" in printed
    assert list(own_inbox.valid().values()) == ["mail_default"]

    assert "pushes nothing" not in rotate("--enable")
    saved = client.send(GetWebhook())
    assert saved.trans_enable
    assert saved.trans_event is not None
    assert set(saved.trans_event.model_dump().values()) == {True}


def test_two_tokens_are_valid_until_the_older_ends(client: MailClient, rotate: Rotate, own_inbox: Tokens) -> None:
    rotate()
    first = saved_token(client)
    rotate("--grace-hours", "1")
    assert len(own_inbox.valid()) == 2
    rotate("--grace-hours", "0")
    assert len(own_inbox.valid()) == 1
    own_inbox.add(other := new_token(), "other")
    rotate("--grace-hours", "0")
    assert sorted(own_inbox.valid().values()) == ["mail_default", "other"], "of another connection"
    assert first not in (saved_token(client), other)


def test_the_url_is_shown_only_to_be_saved_by_hand(client: MailClient, rotate: Rotate, own_inbox: Tokens) -> None:
    printed = rotate("--no-save", "--url", "https://other.example/x/")
    (url,) = (line.strip() for line in printed.splitlines() if "https://" in line)
    assert url.startswith("https://other.example/x/")
    rotate("--no-save", "--grace-hours", "0")
    assert token_digest(token_of(url)) in own_inbox.valid(), "until the new URL is saved"
    rotate("--no-save", "--grace-hours", "0")
    assert token_digest(token_of(url)) not in own_inbox.valid()
    assert len(own_inbox.valid()) == 2
    assert client.send(GetWebhook()).trans_callback_url is None


def test_a_rotation_that_fails_leaves_the_old_token(
    emulator: Emulator, client: MailClient, rotate: Rotate, own_inbox: Tokens, capfd: pytest.CaptureFixture[str]
) -> None:
    rotate()
    before = saved_token(client)
    fault = emulator.faults.add("code_before", "/v5/webhook/save", count=None, code=403, message="not for you")
    with pytest.raises(SystemExit):
        rotate()
    assert "former token remains valid" in capfd.readouterr().err
    assert saved_token(client) == before
    assert len(own_inbox.valid()) == 2
    emulator.faults.remove(fault)
    rotate("--grace-hours", "0")
    assert len(own_inbox.valid()) == 1


def test_without_a_url(
    rotate: Rotate, own_inbox: Tokens, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AIRFLOW__MAIL__RECEIVE_URL")
    with pytest.raises(SystemExit):
        rotate()
    assert "receive_url" in capfd.readouterr().err
    assert own_inbox.valid() == {}


def test_one_rotation_at_a_time(
    client: MailClient,
    rotate: Rotate,
    own_inbox: Tokens,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    rotate()
    said: list[str] = []

    def rotate_meanwhile(*_: object) -> None:
        with pytest.raises(SystemExit):
            main(["receive", "rotate", "--grace-hours", "0"])
        said.append(capfd.readouterr().err)

    monkeypatch.setattr(receive, "_wait", rotate_meanwhile)
    rotate("--grace-hours", "0")
    assert ["another rotation of connection 'mail_default' has not ended" in err for err in said] == [True] * 2
    assert list(own_inbox.valid()) == [token_digest(saved_token(client))]
    monkeypatch.setattr(receive, "_wait", lambda *_: None)
    rotate("--grace-hours", "0")
    assert list(own_inbox.valid()) == [token_digest(saved_token(client))], "the lock has gone"


def test_a_rotation_that_loses_its_lock_ends_no_token(
    client: MailClient,
    rotate: Rotate,
    own_inbox: Tokens,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if own_inbox._inbox.is_sqlite:
        pytest.skip("SQLite locks a file")
    rotate()

    def end_connection(*_: object) -> None:
        with own_inbox._inbox.connected() as cursor:
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")

    monkeypatch.setattr(receive, "_wait", end_connection)
    with pytest.raises(SystemExit):
        rotate("--grace-hours", "0")
    assert "rotate again: the database has ended this rotation" in capfd.readouterr().err
    assert len(own_inbox.valid()) == 2
    assert token_digest(saved_token(client)) in own_inbox.valid()


@pytest.mark.parametrize("override", [False, True], ids=["url", "override"])
def test_no_token_ends_that_the_service_has_at_the_end(
    override: bool,
    client: MailClient,
    rotate: Rotate,
    own_inbox: Tokens,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    rotate()
    rotate("--grace-hours", "1")
    former = client.send(GetWebhook()).trans_callback_url or ""
    new: list[str] = []

    def change_meanwhile(purpose: str, _: float) -> None:
        if "former" in purpose:
            new.append(saved_token(client))
            extra = [SenderCallback(sender=SENDERS[1], url=former)]
            client.send(
                SaveWebhook(trans_callback_url_extra=extra) if override else SaveWebhook(trans_callback_url=former)
            )

    monkeypatch.setattr(receive, "_wait", change_meanwhile)
    if override:
        assert "which do not end" in rotate("--grace-hours", "0")
        assert set(own_inbox.valid()) == {token_digest(token_of(former)), token_digest(*new)}
    else:
        with pytest.raises(SystemExit):
            rotate("--grace-hours", "0")
        assert "No token ends" in capfd.readouterr().err
        assert len(own_inbox.valid()) == 3


def test_deployments_do_not_end_tokens_of_each_other(
    rotate: Rotate, own_inbox: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_inbox.create()
    for deployment in ("", "staging", "production", "staging", "production", ""):
        monkeypatch.setenv("AIRFLOW__MAIL__NAME_PREFIX", deployment)
        before = set(own_inbox.valid())
        rotate("--grace-hours", "0")
        rotate("--no-save", "--grace-hours", "0")
        assert len(set(own_inbox.valid()) - before) == 2
    assert len(own_inbox.valid()) == 6


@pytest.mark.parametrize("times", [(), ("--no-save",)], ids=["saved", "by hand"])
def test_a_token_from_the_future_ends(times: tuple[str, ...], rotate: Rotate, own_inbox: Tokens) -> None:
    rotate("--no-save")
    change(own_inbox, "created_at", timedelta(days=1))
    (leaked,) = own_inbox.valid()
    for _ in range(2):
        rotate("--grace-hours", "0", *times)
    assert leaked not in own_inbox.valid()


def test_a_token_is_valid_until_the_clock_of_the_database_says_that_it_ends(rotate: Rotate, own_inbox: Tokens) -> None:
    rotate("--no-save")
    change(own_inbox, "retires_at", timedelta(seconds=30))
    assert len(own_inbox.valid()) == 1
    change(own_inbox, "retires_at", timedelta(milliseconds=-1))
    assert own_inbox.valid() == {}


def test_a_former_token_ends_after_the_grace_time_of_the_first_rotation(rotate: Rotate, own_inbox: Tokens) -> None:
    rotate()
    rotate("--grace-hours", "1")
    rotate("--grace-hours", "72")
    hour = timedelta(hours=1)
    left = [at - database_time(own_inbox) for at in retirements(own_inbox)]
    assert [round(each / hour) for each in left] == [1, 72]
    assert left[0] <= hour
    rotate("--grace-hours", "0.5")
    assert [round((at - database_time(own_inbox)) / hour, 1) for at in retirements(own_inbox)] == [0.5] * 3


@pytest.mark.parametrize("hours", ["-1", "nan", "inf", "8761"])
def test_an_impossible_grace_time(hours: str, rotate: Rotate, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        rotate(f"--grace-hours={hours}")
    assert "--grace-hours: must be from 0 to 8760" in capfd.readouterr().err


def database_time(tokens: Tokens) -> datetime:
    return query(tokens, "SELECT {time}", 0)[0]


def retirements(tokens: Tokens) -> list[datetime]:
    return query(tokens, "SELECT retires_at FROM {table} WHERE retires_at IS NOT NULL ORDER BY 1")


def query(tokens: Tokens, sql: str, *parameters: float) -> list[datetime]:
    with tokens._inbox.connected() as cursor:
        tokens._run(cursor, sql, *parameters)
        return [datetime.fromisoformat(at) if isinstance(at, str) else at for (at,) in cursor.fetchall()]


def change(tokens: Tokens, column: str, ahead: timedelta) -> None:
    with tokens._inbox.connected() as cursor:
        tokens._run(cursor, f"UPDATE {{table}} SET {column} = {{time}}", ahead.total_seconds())
        cursor.connection.commit()
