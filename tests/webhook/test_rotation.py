"""``airflow mail receive rotate`` at the emulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import datetime, timedelta

import pytest
from pydantic import SecretStr

from airflow_provider_mail.__main__ import main
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import MailConflictError
from airflow_provider_mail.api.webhooks import EventToggles, GetWebhook, SaveWebhook, SenderCallback
from airflow_provider_mail.cli.receive import SPREAD_SECONDS
from airflow_provider_mail.webhook.inbox import Inbox
from airflow_provider_mail.webhook.tokens import TokenOwner, Tokens, new_token, token_digest, token_of
from mail_emulator import Emulator
from tests.support.clock import StillClock
from tests.warehouse.conftest import Warehouse
from tests.webhook.receiving import execute

pytestmark = pytest.mark.not_unit
in_both_databases = pytest.mark.parametrize("inbox", ["sqlite", "psycopg3"], indirect=True)

Rotate = Callable[..., str]
WHILE_RECEIVERS_LEARN_THE_TOKEN, WHILE_FORMER_PUSHES_ARRIVE = SPREAD_SECONDS / 2, SPREAD_SECONDS * 1.5


@pytest.fixture
def inbox(request: pytest.FixtureRequest, make_warehouse: Callable[..., Warehouse]) -> Inbox:
    """An inbox in SQLite, where a test does not name another database."""
    made = Inbox(make_warehouse(getattr(request, "param", "sqlite")).hook)
    made.create()
    return made


@pytest.fixture
def client(emulator: Emulator) -> Iterator[MailClient]:
    with MailClient(ClientConfig(base_url=emulator.base_url, api_key=emulator.api_key)) as client:
        yield client


@pytest.fixture
def rotate(
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    airflow_home: object,
    still_clock: StillClock,
) -> Rotate:
    """Runs the command, and returns what it printed, or its error."""
    connection = {"conn_type": "mail", "host": emulator.base_url, "password": emulator.api_key}
    monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW__MAIL__INBOX_CONN_ID", "warehouse")
    monkeypatch.setenv("AIRFLOW__MAIL__RECEIVE_URL", "https://airflow.example.com/base/mail-events/")

    def run(*arguments: str, fails: bool = False) -> str:
        capfd.readouterr()
        with pytest.raises(SystemExit) if fails else nullcontext():
            main(["receive", "rotate", *arguments])
        printed = capfd.readouterr()
        return printed.err if fails else printed.out

    return run


@pytest.fixture
def tokens(inbox: Inbox) -> Tokens:
    return Tokens(inbox)


def saved_digest(client: MailClient) -> str:
    return token_digest(token_of(client.send(GetWebhook()).trans_callback_url or ""))


def time_of_database(inbox: Inbox, seconds: float) -> str:
    """An expression for a time so many seconds from now."""
    if inbox.hook.conn_type == "sqlite":
        return f"strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now', '{seconds} seconds')"
    return f"(clock_timestamp() + interval '{seconds} seconds')"


def change(inbox: Inbox, column: str, seconds: float) -> None:
    execute(inbox, f"UPDATE mail_inbox_tokens SET {column} = {time_of_database(inbox, seconds)}")


def hours_left(inbox: Inbox) -> list[float]:
    """For how long tokens that end are valid."""
    now = time_of_database(inbox, 0)
    with inbox.connected() as cursor:
        cursor.execute(f"SELECT {now}, retires_at FROM mail_inbox_tokens WHERE retires_at IS NOT NULL ORDER BY 2")
        times = [[datetime.fromisoformat(str(at)) for at in row] for row in cursor.fetchall()]
    return [round((at - now) / timedelta(hours=1), 1) for now, at in times]


def test_the_first_token_is_saved_at_the_service(client: MailClient, rotate: Rotate, tokens: Tokens) -> None:
    assert "The service pushes nothing" in rotate()
    saved = client.send(GetWebhook())
    assert (saved.trans_callback_url or "").startswith("https://airflow.example.com/base/mail-events/")
    assert saved.trans_enable is None
    assert tokens.valid() == {saved_digest(client): "mail_default"}
    assert "pushes nothing" not in rotate("--enable")
    saved = client.send(GetWebhook())
    assert saved.trans_enable
    assert set((saved.trans_event or EventToggles()).model_dump().values()) == {True}


def test_two_tokens_are_valid_until_the_older_ends(client: MailClient, rotate: Rotate, tokens: Tokens) -> None:
    rotate()
    first = saved_digest(client)
    rotate("--grace-hours", "1")
    assert set(tokens.valid()) == {first, saved_digest(client)}
    rotate("--grace-hours", "0")
    Tokens(tokens._inbox, TokenOwner("other", "", "")).add(new_token())
    rotate("--grace-hours", "0")
    assert sorted(tokens.valid().values()) == ["mail_default", "other"], "of another connection"
    assert first != saved_digest(client) in tokens.valid()


def test_a_url_that_is_saved_by_hand_is_shown_once(client: MailClient, rotate: Rotate, tokens: Tokens) -> None:
    printed = rotate("--no-save", "--url", "https://other.example/x/")
    (url,) = (line.strip() for line in printed.splitlines() if "https://" in line)
    assert url.startswith("https://other.example/x/")
    for _ in range(2):
        Tokens(tokens._inbox, TokenOwner("other", "", "")).add(new_token())
    rotate("--no-save", "--grace-hours", "0")
    assert token_digest(token_of(url)) in tokens.valid(), "until the new URL is saved"
    rotate("--no-save", "--grace-hours", "0")
    assert token_digest(token_of(url)) not in tokens.valid()
    assert sorted(tokens.valid().values()) == ["mail_default"] * 2 + ["other"] * 2
    assert client.send(GetWebhook()).trans_callback_url is None


def test_a_rotation_that_fails_leaves_the_former_token(
    emulator: Emulator, client: MailClient, rotate: Rotate, tokens: Tokens
) -> None:
    rotate()
    before = saved_digest(client)
    fault = emulator.faults.add("code_before", "/v5/webhook/save", count=None, code=403, message="not for you")
    assert "former token remains valid" in rotate(fails=True)
    assert saved_digest(client) == before
    assert len(tokens.valid()) == 2
    emulator.faults.remove(fault)
    rotate("--grace-hours", "0")
    assert len(tokens.valid()) == 1


def test_a_rotation_without_its_settings_makes_no_token(
    client: MailClient, rotate: Rotate, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send(SaveWebhook(trans_callback_url="https://other.example/hook"))
    for hours in ("-1", "nan", "inf", "8761"):
        assert "--grace-hours: must be from 0 to 8760" in rotate(f"--grace-hours={hours}", fails=True)
    for url in ("other.example", "https://other.example/?a=b", "https://other.example/#x"):
        assert "receive_url: must begin with https://" in rotate("--url", url, fails=True)
    monkeypatch.delenv("AIRFLOW__MAIL__RECEIVE_URL")
    for argument in ((), ("--no-save",)):
        assert "receive_url" in rotate(*argument, fails=True)
        assert tokens.valid() == {}


@in_both_databases
def test_one_rotation_runs_at_a_time(
    client: MailClient, rotate: Rotate, tokens: Tokens, still_clock: StillClock
) -> None:
    rotate()
    errors: list[str] = []

    def rotate_too() -> None:
        errors.append(rotate("--grace-hours", "0", fails=True))
        is_sqlite = tokens._inbox.hook.conn_type == "sqlite"  # whose lock is that of all connections
        other = Tokens(tokens._inbox, TokenOwner("other", "", ""))
        with pytest.raises(MailConflictError) if is_sqlite else nullcontext(), other.rotation():
            pass

    for seconds in (WHILE_RECEIVERS_LEARN_THE_TOKEN, WHILE_FORMER_PUSHES_ARRIVE):
        still_clock.after(seconds, lambda: rotate_too())
    rotate("--grace-hours", "0")
    assert ["another rotation of connection 'mail_default' has not ended" in error for error in errors] == [True] * 2
    assert list(tokens.valid()) == [saved_digest(client)]
    rotate("--grace-hours", "0")
    assert list(tokens.valid()) == [saved_digest(client)], "the lock has ended"


@pytest.mark.parametrize("inbox", ["psycopg3"], indirect=True)
def test_a_rotation_that_loses_its_lock_ends_no_token(
    client: MailClient, rotate: Rotate, inbox: Inbox, tokens: Tokens, still_clock: StillClock
) -> None:
    rotate()
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    still_clock.after(WHILE_FORMER_PUSHES_ARRIVE, lambda: execute(inbox, end))
    error = rotate("--grace-hours", "0", fails=True)
    assert "rotate again: the database has ended this rotation" in error
    assert len(tokens.valid()) == 2
    assert saved_digest(client) in tokens.valid()


@pytest.mark.parametrize("override", [False, True], ids=["url", "override"])
def test_no_token_ends_that_the_service_uses(
    override: bool, client: MailClient, rotate: Rotate, tokens: Tokens, still_clock: StillClock
) -> None:
    """The URLs of the service may be changed until the end."""
    rotate()
    rotate("--grace-hours", "1")
    former = client.send(GetWebhook()).trans_callback_url or ""
    new: list[str] = []

    def change_url() -> None:
        new.append(saved_digest(client))
        extra = [SenderCallback(sender="shop@other.example", url=former)]
        client.send(SaveWebhook(trans_callback_url_extra=extra) if override else SaveWebhook(trans_callback_url=former))

    still_clock.after(WHILE_FORMER_PUSHES_ARRIVE, change_url)
    if override:
        assert "which do not end" in rotate("--grace-hours", "0")
        assert set(tokens.valid()) == {token_digest(token_of(former)), *new}
    else:
        assert "No token ends" in rotate("--grace-hours", "0", fails=True)
        assert len(tokens.valid()) == 3


def test_a_rotation_changes_all_its_urls_and_no_others(
    client: MailClient, rotate: Rotate, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotate()
    former = token_of(client.send(GetWebhook()).trans_callback_url or "")
    urls = {"shop@a.example": "https://proxy.example/x/", "news@a.example": "https://other.example/"}
    ends = dict(zip(urls, (former, "hook"), strict=True))
    extra = [SenderCallback(sender=sender, url=url + ends[sender]) for sender, url in urls.items()]
    client.send(SaveWebhook(trans_callback_url_extra=extra))
    monkeypatch.delenv("AIRFLOW__MAIL__RECEIVE_URL")
    rotate("--grace-hours", "0")
    saved = client.send(GetWebhook())
    new = token_of(saved.trans_callback_url or "")
    assert saved.trans_callback_url == f"https://airflow.example.com/base/mail-events/{new}"
    assert {each.sender: each.url for each in saved.callbacks} == {
        "shop@a.example": f"https://proxy.example/x/{new}",
        "news@a.example": "https://other.example/hook",
    }
    assert list(tokens.valid()) == [token_digest(new)] != [token_digest(former)]


@pytest.mark.parametrize("differs", ["host", "account"])
def test_tokens_of_other_services_and_accounts_do_not_end(
    differs: str,
    emulator: Emulator,
    client: MailClient,
    rotate: Rotate,
    tokens: Tokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deployments may share an inbox, and have one connection id and one prefix for different accounts.

    One service may be a copy of the other, with its URL.
    """

    def use(used: Emulator, key: str) -> None:
        connection = {"conn_type": "mail", "host": used.base_url, "password": key}
        monkeypatch.setenv("AIRFLOW_CONN_MAIL_DEFAULT", json.dumps(connection))

    with Emulator() as production:
        rotate("--grace-hours", "0")
        (staging,) = tokens.valid()
        use(production, production.api_key)
        copied = SaveWebhook(trans_callback_url=client.send(GetWebhook()).trans_callback_url)
        with MailClient(ClientConfig(base_url=production.base_url, api_key=production.api_key)) as other:
            other.send(copied)
        for _ in range(2):
            assert "1 tokens of this connection id belong to other services" in rotate("--grace-hours", "0")
            assert len(tokens.valid()) == 2
            assert staging in tokens.valid()
        if differs == "host":
            use(emulator, emulator.api_key)
            rotate("--grace-hours", "0")
            assert staging not in tokens.valid()
            change(tokens._inbox, "retires_at", -1)
            assert "belong to other services" not in rotate(), "those that have ended do not count"
            return
        # Another account of the same service: what is in no URL of this one stays.
        (own,) = set(tokens.valid()) - {staging}
        Tokens(tokens._inbox, tokens_owner(production, "of another account")).add("another")
        rotate("--grace-hours", "0")
        assert {staging, token_digest("another")} <= set(tokens.valid())
        assert own not in tokens.valid()


def tokens_owner(emulator: Emulator, key: str) -> TokenOwner:
    return TokenOwner.of("mail_default", ClientConfig(base_url=emulator.base_url, api_key=SecretStr(key)))


@pytest.mark.parametrize("url", ["https://API.example.com:443/", "https://münchen.de", "http://localhost:80"])
def test_a_service_is_the_same_in_every_spelling_of_its_url(url: str) -> None:
    same = {"https://münchen.de": "https://xn--mnchen-3ya.de", "http://localhost:80": "http://localhost"}
    owners = {
        TokenOwner.of("mail_default", ClientConfig(base_url=each, api_key=SecretStr("key")))
        for each in (url, same.get(url, "https://api.example.com"))
    }
    assert len(owners) == 1


@in_both_databases
def test_a_token_ends_after_the_api_key_was_changed(
    emulator: Emulator, rotate: Rotate, tokens: Tokens, client: MailClient
) -> None:
    rotate()
    execute(tokens._inbox, "UPDATE mail_inbox_tokens SET account = 'digest of the former key'")
    rotate("--grace-hours", "0")
    assert list(tokens.valid()) == [saved_digest(client)]


def test_a_token_of_another_connection_is_not_taken_over(
    emulator: Emulator, client: MailClient, rotate: Rotate, tokens: Tokens
) -> None:
    """Its URL may have been copied from another account."""
    config = ClientConfig(base_url=emulator.base_url, api_key=SecretStr("of another account"))
    other = Tokens(tokens._inbox, TokenOwner.of("other", config))
    other.add(token := new_token())
    client.send(SaveWebhook(trans_callback_url=f"https://airflow.example.com/{token}"))
    rotate("--grace-hours", "0")
    with other.rotation() as cursor:
        assert other.digests(cursor) == [token_digest(token)]


@in_both_databases
def test_a_token_from_the_future_ends(rotate: Rotate, inbox: Inbox, tokens: Tokens) -> None:
    """The clock of a machine that made it was wrong."""
    for arguments in (("--no-save",), ()):
        before = set(tokens.valid())
        rotate("--no-save")
        (leaked,) = set(tokens.valid()) - before
        change(inbox, "created_at", 86_400)
        for _ in range(2):
            rotate("--grace-hours", "0", *arguments)
        assert leaked not in tokens.valid()


@in_both_databases
def test_the_database_decides_until_when_a_token_is_valid(rotate: Rotate, inbox: Inbox, tokens: Tokens) -> None:
    rotate()
    for grace, left in (("1", [1]), ("8760", [1, 8760]), ("0.5", [0.5] * 3)):
        rotate("--grace-hours", grace)
        assert hours_left(inbox) == left, "a token that ends sooner does not get longer"
    change(inbox, "retires_at", 3600)
    assert len(tokens.valid()) == 4
    change(inbox, "retires_at", -0.001)
    assert tokens.valid() == {}
