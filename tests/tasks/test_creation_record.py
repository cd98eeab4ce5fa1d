"""What a task stores of its attempts to create a campaign, and what the next try reads of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.creation import RECORD_KEY, StateStore, creation_record
from tests.tasks.sending import remembers

RECORD = {"version": 3, "mail_name": "spring", "incomplete": False, "attempted_at": None, "seen": False,
          "sends_at": None, "max_tries": 2}  # fmt: skip


@pytest.mark.parametrize(("record", "own", "incomplete", "sent", "cleared"), [
    (None, False, False, False, False),
    (RECORD, False, False, False, False),
    (RECORD | {"max_tries": 1}, False, False, False, True),
    (RECORD | {"incomplete": True}, True, True, False, False),
    (RECORD | {"attempted_at": 1.5}, True, False, False, False),
    (RECORD | {"seen": True, "sends_at": 1.5}, True, False, True, False),
    # What is not understood may mean anything.
    ({"version": 4, "what": "a later version wrote"}, True, True, True, True),
    ({"version": 3, "mail_name": "spring", "incomplete": False}, True, True, True, True),
    ("spring", True, True, True, True),
])  # fmt: skip
def test_what_is_stored(record: Any, own: bool, incomplete: bool, sent: bool, cleared: bool) -> None:
    store = StateStore()
    if record is not None:
        store.set(RECORD_KEY, record)
    state = creation_record(store, try_number=2, max_tries=2)
    known = (state.is_own, state.incomplete, state.was_sent(time.time()), state.cleared)
    assert known == (own, incomplete, sent, cleared)


@remembers
def test_the_next_try_knows_what_this_one_marked() -> None:
    store = StateStore()
    state = creation_record(store, try_number=1)
    state.start("spring")
    for mark, *values in [
        (state.mark_attempted, 1.5), (state.mark_incomplete,), (state.mark_sends_at, 4.5), (state.mark_complete,),
        (state.mark_seen, 2.5), (state.mark_seen, None), (state.clear_attempt, 0.5), (state.mark_sent,),
        (state.clear_attempt,),
    ]:  # fmt: skip
        mark(*values)
        read = creation_record(store, try_number=2)
        for name in ("mail_name", "incomplete", "attempted_at", "seen", "sends_at"):
            assert getattr(read, name) == getattr(state, name), (mark.__name__, name)
