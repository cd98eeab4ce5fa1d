"""The words of messages and campaigns, for searches."""

from __future__ import annotations

import html
import re
import time

from mail_emulator import codec
from mail_emulator.store import Row, Store

_TAG = re.compile(r"<[^<>]*+>")
_WORD = re.compile(r"[^\W_]+")
_CHUNK = 200
#: SQLite limits the size of queries.
_MOST = 20


def words(text: str) -> list[str]:
    """Return the first words of a search. What has neither a letter nor a digit is left out."""
    return [word for word in text.split() if _WORD.search(word)][:_MOST]


def match(word: str) -> str:
    """Return the full-text query for a word: each of its parts must be the beginning of a word of the text.

    :param word: the word, of :func:`words`.
    """
    return " ".join(f'"{part}"*' for part in _WORD.findall(word)[:_MOST])


class SearchIndex:
    """A full-text index of messages and campaigns by their id; ids of campaigns are higher than those of messages.

    It is in SQLite's temporary database, which is created by the first update and moves to disk when it grows.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._generation: int | None = None
        self._message_id = 0
        self._campaign_id = 0

    def update(self, seconds: float | None = None) -> None:
        """Add new messages and campaigns.

        :param seconds: stop after this time. Default: when all are in the index.
        """
        began = time.monotonic()
        if self._generation != self._store.generation:
            self._create()
        while rows := self._next_rows():
            with self._store.transaction():
                self._store.run_many(
                    "INSERT INTO temp.mail_index (rowid, text) VALUES (?, ?)", map(_indexed_text, rows)
                )
            if seconds is not None and time.monotonic() - began > seconds:
                break

    def missing(self) -> int:
        """Return the number of messages that are not in the index yet."""
        return int(self._store.value("SELECT coalesce(max(id), 0) FROM messages")) - self._message_id

    def _create(self) -> None:
        self._store.run("DROP TABLE IF EXISTS temp.mail_index")
        self._store.run("CREATE VIRTUAL TABLE temp.mail_index USING fts5 (text, content='', columnsize=0, detail=none)")
        self._generation = self._store.generation
        self._message_id = self._campaign_id = 0

    def _next_rows(self) -> list[Row]:
        messages = self._store.rows(
            "SELECT id, unique_msg_id, sender, sender_name, subject, template, category, campaign, attachment_name, "
            f"content FROM messages WHERE id > ? ORDER BY id LIMIT {_CHUNK}",
            [self._message_id],
        )
        campaigns = self._store.rows(
            f"SELECT id, name, guid, sender, subject, request FROM campaigns WHERE id > ? ORDER BY id LIMIT {_CHUNK}",
            [self._campaign_id],
        )
        self._message_id = messages[-1]["id"] if messages else self._message_id
        self._campaign_id = campaigns[-1]["id"] if campaigns else self._campaign_id
        for row in campaigns:
            row["content"] = codec.decode(row.pop("request"))["content"]
        return [*messages, *campaigns]


def _indexed_text(row: Row) -> tuple[int, str]:
    row_id, *others, content = row.values()
    return row_id, " ".join((*filter(None, others), html.unescape(_TAG.sub(" ", content or ""))))
