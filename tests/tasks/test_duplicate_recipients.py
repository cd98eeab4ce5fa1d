"""The same person twice in a mailing: an error before anything is sent, left out, or allowed."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.transfers.sql_to_mail import SqlToMailBatchOperator
from mail_emulator import Emulator
from tests.support.task_parts import Recipients, address_key
from tests.tasks.conftest import TASK, Run, SqlDatabase
from tests.tasks.sending import (
    AT_ONCE,
    HELLO,
    SENDS,
    address,
    batch,
    batch_result,
    everybody,
    letters,
    mailed,
    remembers,
)

TWICE = [
    *letters(12),
    *letters(3),
    {"to": ["USER1@example.com", "new@example.com"], "cc": ["new@example.com"], "params": {"name": "Two"}},
]
"""In requests of ten: three people once more, one of them in capitals once more, and one in `to` and `cc`."""


@pytest.fixture
def crm(crm: SqlDatabase) -> SqlDatabase:
    crm.execute("CREATE TABLE people (n INTEGER, email TEXT, boss TEXT)")
    crm.execute("CREATE TABLE orders (email TEXT, item TEXT)")
    crm.execute("INSERT INTO people", [(n, address(n), "boss@example.com") for n in range(20)])
    crm.execute("INSERT INTO orders", [(address(n), item) for n in (3, 7) for item in ("Engine", "Key", "Box")])
    return crm


def joined(**arguments: Any) -> SqlToMailBatchOperator:
    sql = "SELECT p.email, p.boss, o.item FROM people p LEFT JOIN orders o ON o.email = p.email ORDER BY n, item"
    content = {"content": "{% raw %}{{item}}{% endraw %}", "mail_params": {"item": "nothing"}}
    given = {"task_id": TASK, "sql_conn_id": "crm", "sql": sql, "cc_column": "boss", "versions_per_request": 10}
    return SqlToMailBatchOperator(**HELLO | given | content | arguments)


def test_duplicates_send_nothing_unless_they_are_allowed(run: Run, emulator: Emulator) -> None:
    done = run(lambda: batch(messages=TWICE, **AT_ONCE))

    assert (done.state, done.tries) == ("failed", 1)
    assert (
        "messages[12].to: the same recipient as messages[0]; messages[13].to: the same recipient as messages[1]; "
        "messages[14].to: the same recipient as messages[2]; messages[15].to: the same recipient as messages[1]; "
        "messages[15].cc: twice in this message. 5 duplicate recipients: nothing was sent. "
        "on_duplicate_recipient='skip'"
    ) in done.log
    assert emulator.journal.count() == 0
    done = run(lambda: batch(messages=TWICE, on_duplicate_recipient="allow"))
    assert done.returned == batch_result(2, 18, duplicate_recipients=5)


@remembers
def test_duplicates_are_left_out_by_every_try(run: Run, emulator: Emulator) -> None:
    emulator.faults.add("close_before", SENDS, skip=1)

    done = run(lambda: batch(messages=TWICE, on_duplicate_recipient="skip", on_ambiguous="resend", **AT_ONCE))

    assert (done.state, done.tries) == ("success", 2)
    assert done.returned == batch_result(2, 13, duplicate_recipients=5)
    assert mailed(emulator) == everybody(range(12)) + Counter(["new@example.com"])
    assert [len(entry["body"]["messageVersions"]) for entry in emulator.journal.entries(SENDS)] == [10, 3, 3]
    assert "5 recipients come more than once and are mailed only the first time" in done.log


def test_duplicates_of_a_join_are_named_by_their_rows(run: Run, emulator: Emulator, crm: SqlDatabase) -> None:
    done = run(joined)

    assert done.state == "failed"
    assert "sql: row 5, column 'email': the same recipient as row 4; row 6, column 'email': " in done.log
    assert "4 duplicate recipients: nothing was sent" in done.log
    assert emulator.journal.count() == 0

    crm.execute("INSERT INTO people", [(21, "nobody", None)])
    done = run(lambda: joined(on_duplicate_recipient="skip"))
    assert "sql: row 25, column 'email': is not an email address" in done.log

    crm.execute("DELETE FROM people WHERE n = 21")
    done = run(lambda: joined(on_duplicate_recipient="skip"))
    assert done.returned == batch_result(2, 40, duplicate_recipients=4)
    assert mailed(emulator) == everybody(range(20)) + Counter({"boss@example.com": 20})


def test_another_spelling_is_the_same_recipient(run: Run, emulator: Emulator) -> None:
    spelled = ["ann@münchen.de", "Ann@xn--mnchen-3ya.de", "ann@mu\u0308nchen.de", "ann@strasse.de", "ann@straße.de"]
    messages = [{"to": email, "params": {"name": "Ann"}} for email in spelled]
    run(lambda: batch(messages=messages, on_duplicate_recipient="skip"))
    assert mailed(emulator) == Counter(["ann@münchen.de", "ann@strasse.de", "ann@straße.de"])


PEOPLE = st.sampled_from(["a@b.cc", "A@b.cc", "é@b.cc", "E\u0301@B.cc", "é@ß.cc", "é@xn--zca.cc", "é@ss.cc"])
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"to": st.lists(PEOPLE, min_size=1, max_size=3)},
        optional={"cc": st.lists(PEOPLE, max_size=2), "bcc": st.lists(PEOPLE, max_size=2)},
    ),
    max_size=8,
)


@given(MESSAGES)
def test_no_recipient_is_left_in_two_messages(messages: list[dict[str, list[str]]]) -> None:
    versions = [{part: [{"email": email} for email in who] for part, who in message.items()} for message in messages]
    skip, fail = Recipients("skip"), Recipients("fail")
    kept = [each for number, version in enumerate(versions) if (each := skip.keep(number, version)) is not None]
    assert [fail.keep(number, version) for number, version in enumerate(versions)] == versions

    to = [address_key(person["email"]) for version in kept for person in version["to"]]
    assert sorted(to) == sorted({address_key(email) for message in messages for email in message["to"]})
    for version in kept:
        within = [address_key(person["email"]) for people in version.values() for person in people]
        assert len(set(within)) == len(within)
    assert skip.count == fail.count
    assert (fail.count == 0) == (kept == versions)
    if fail.count:
        with pytest.raises(MailValidationError, match=f"{fail.count} duplicate recipients") as refused:
            fail.check()
        assert "@" not in str(refused.value)
    skip.check()
    for recipients in (skip, fail):
        recipients.close()


def test_invalid_recipients_are_left_to_the_check_in_flat_memory() -> None:
    recipients = Recipients("skip")
    for wrong in (None, 7, {"name": "x"}, {"email": 7}, "text"):
        version: Any = {"to": [wrong, wrong]}
        assert recipients.keep(0, version) == version
    tracemalloc.start()
    for number in range(5_000):
        recipients.keep(number, {"to": [{"email": address(number)}]})
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    recipients.close()
    assert most < 100_000
