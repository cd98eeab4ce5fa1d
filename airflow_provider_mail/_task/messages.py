"""The messages of a mailing: made of the rows of a query; checked for blank texts, missing values and duplicates."""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from airflow_provider_mail.api._core.fields import address_key, is_blank, is_blank_html, tags_of
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.api.flows.validate_rows import RowChecker

if TYPE_CHECKING:
    from airflow_provider_mail.api.templates import Template
    from airflow_provider_mail.api.transactional import Numbered

MAX_NAMED = 20

_TEXTS = ("subject", "content", "template_name")

MAX_NAMED_DUPLICATES = 10


class MessageCheck:
    """The check of one mailing. It only counts problems, so memory use is constant.

    :param service_tags: returns the tags that the service fills; called only if a tag has no value.
    :param find_template: looks up a stored template; called once for each name.
    """

    def __init__(
        self,
        common: Mapping[str, Any],
        *,
        things: str,
        allow_blank: bool,
        service_tags: Callable[[], Collection[str]],
        find_template: Callable[[str], Template | None],
    ) -> None:
        self._common = common
        self._things = things
        self._allow_blank = allow_blank
        self._defaults = {tag for tag, value in _mapping(common.get("params")).items() if value is not None}
        self._service_tags = lru_cache(service_tags)
        self._find_template = find_template
        self._templates: dict[str, Template] = {}
        self._tags: dict[str, list[str]] = {}
        self._common_tags: Sequence[tuple[str, str]] | None = None
        self._missing: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], int] = {}
        self._given: dict[str, None] = {}
        self._messages = 0

    def checked(self, number: int, version: dict[str, Any]) -> dict[str, Any]:
        """Check a message; return it without the missing values of tags, so that those of all messages apply.

        :raises MailValidationError: naming a text of the message that is blank, or a template that does not exist.
        """
        self._messages += 1
        params = _mapping(version.get("params"))
        missing = {
            tag
            for tag, value in params.items()
            # Of most texts, the first character shows that they are not blank.
            if not (isinstance(value, str) and value[:1].isalnum()) and _is_missing(value)
        }
        filled = params.keys() - missing if missing else params.keys()
        if len(self._given) < MAX_NAMED and not filled <= self._given.keys():
            self._given |= dict.fromkeys(islice((tag for tag in params if tag in filled), MAX_NAMED))
        for tag, field in self._tags_of(number, version):
            if tag not in filled and tag not in self._defaults and tag not in self._service_tags():
                self._missing[tag, field] += 1
                self._first.setdefault((tag, field), number)
        if not missing:
            return version
        # JSON's null is not text. Blank text is left out only if a common value replaces it.
        kept = {
            tag: value
            for tag, value in params.items()
            if tag not in missing or not (value is None or tag in self._defaults)
        }
        return {**version, "params": kept}

    def unfilled(self) -> str:
        """Return which tags have no value, in how many messages; empty text if there are none."""
        problems = []
        for (tag, field), count in self._missing.most_common(MAX_NAMED):
            number = self._first[tag, field]
            first = f"row {number + 1}" if self._things == "rows" else f"messages[{number}]"
            problems.append(
                f"{field}: {{{{{tag}}}}} has no value in {count:,} of {self._messages:,} {self._things}, the first is "
                f"{first}"
            )
        return "; ".join(problems)

    def given(self) -> str:
        """Return the names of tags with values, for errors."""
        return ", ".join([*self._given, *sorted(self._defaults - self._given.keys())]) or "no tag"

    def _tags_of(self, number: int, version: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
        """Return the tags that the message may show, each with the field that has it."""
        own = {name: version[name] for name in _TEXTS if name in version}
        if not own and self._common_tags is not None:
            return self._common_tags
        tags = [
            (tag, field)
            for field, text in self._texts(number, own)
            for tag in (self._tags[text] if text in self._tags else tags_of(text))
        ]
        if not own:
            self._common_tags = tags
        return tags

    def _texts(self, number: int, own: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the texts that the message may show: if the specification leaves open which, all of them."""
        place = f"messages[{number}]"
        if not self._allow_blank:
            for name, text in own.items():
                if isinstance(text, str) and (is_blank_html(text) if name == "content" else is_blank(text)):
                    raise MailValidationError(
                        f"{place}.{name}: is blank: nothing was sent. Leave it out where that of all messages is "
                        "meant, or set allow_blank=True"
                    )
        template_name = own.get("template_name") or self._common.get("template_name")
        template = self._template(template_name, f"{place}.template_name" if own.get("template_name") else "")
        if template is not None:
            yield f"content of template {template_name!r}", self._cached(template.template_content)
        if not own.get("template_name") and own.get("content"):
            yield "content", own["content"] if isinstance(own["content"], str) else ""
        elif not template_name:
            yield "content", self._cached(self._common.get("content"))
        if subject := own.get("subject"):
            yield "subject", subject if isinstance(subject, str) else ""
        elif subject := self._common.get("subject"):
            yield "subject", self._cached(subject)
        elif template is not None:
            yield f"subject of template {template_name!r}", self._cached(template.template_subject)

    def _cached(self, text: Any) -> str:
        """Return a text that many messages share, and cache its tags."""
        shared_text: str = text if isinstance(text, str) else ""
        if shared_text not in self._tags:
            self._tags[shared_text] = tags_of(shared_text)
        return shared_text

    def _template(self, name: Any, place: str) -> Template | None:
        if not isinstance(name, str) or not name:
            return None
        if name not in self._templates:
            place = place or "template_name"
            template = self._find_template(name)
            if template is None:
                raise MailValidationError(f"{place}: there is no template {name!r}: nothing was sent")
            if not self._allow_blank and is_blank_html(template.template_content or "x"):
                raise MailValidationError(
                    f"{place}: the content of template {name!r} shows nothing: nothing was sent. To send it "
                    "nevertheless, set allow_blank=True"
                )
            self._templates[name] = template
        return self._templates[name]


def _mapping(params: Any) -> Mapping[str, Any]:
    return params if isinstance(params, (dict, Mapping)) else {}  # a dictionary is recognized at once


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and is_blank(value))


def check_columns(names: Sequence[str], used: Mapping[str, Iterable[str]]) -> None:
    """Verify that a query has each of some columns once.

    :param used: the columns by the operator's argument.
    :raises MailValidationError: naming the argument and the query's columns.
    """
    for argument, columns in used.items():
        for column in columns:
            if names.count(column) != 1:
                problem = "more than one" if column in names else "no"
                raise MailValidationError(f"{argument}: the query has {problem} {column!r}; it has {', '.join(names)}")


def private_database(table: str) -> sqlite3.Connection:
    """Return a database of this process with one table; it moves from memory to a temporary file when it grows."""
    database = sqlite3.connect("", isolation_level=None)
    for pragma in ("journal_mode", "synchronous"):
        database.execute(f"PRAGMA {pragma} = OFF")
    database.execute(f"CREATE TABLE {table} WITHOUT ROWID")
    database.execute("BEGIN")
    return database


class RowMessages:
    """Maps the columns of a query to the parts of a message.

    :param cc: the column with addresses for copies, separated by commas, if any.
    :param tags: the tag of each column with a value; ``None``: every column except those of the addresses, by its name.
    :raises MailValidationError: naming the operator's argument and the query's columns.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        to: str,
        name: str | None,
        cc: str | None,
        bcc: str | None,
        tags: Mapping[str, str] | None,
    ) -> None:
        roles = {"to": to, "name": name, "cc": cc, "bcc": bcc}
        self._named = {part: column for part, column in roles.items() if column}
        addresses = {self._named.get(part) for part in ("to", "cc", "bcc")}
        tags = {column: column for column in names if column not in addresses} if tags is None else tags
        check_columns(names, {f"{part}_column": [column] for part, column in self._named.items()} | {"columns": tags})
        twice = sorted({tag for tag in tags.values() if list(tags.values()).count(tag) > 1})
        if twice:
            raise MailValidationError(f"columns: duplicate tags: {', '.join(twice)}")
        self._at = {part: names.index(column) for part, column in self._named.items()}
        self._tags = tuple(tags.values())
        self._tags_at = [names.index(column) for column in tags]

    def build(self, batches: Iterable[Sequence[Sequence[Any]]]) -> Iterator[dict[str, Any]]:
        """Build a message for each row.

        :raises MailValidationError: for an invalid row, naming its number, from 1, and its column.
        """
        # As for contacts, every value that has one obvious form as text is sent as text.
        checker = RowChecker([f"params.{tag}" for tag in self._tags])
        first = 1
        for rows in batches:
            checked = checker.check([[row[place] for place in self._tags_at] for row in rows], first)
            for reject in checked.rejects:
                raise MailValidationError(f"sql: row {reject.row_number}, {reject.field}: {reject.reason}")
            values = msgspec.json.decode(checked.encoded)
            for number, (row, texts) in enumerate(zip(rows, values, strict=True), first):
                params = {tag: text for tag, text in zip(self._tags, texts, strict=True) if text is not None}
                yield {**self._people(number, row), **({"params": params} if params else {})}
            first += len(rows)

    def by_row(self, error_message: str) -> str:
        """Rephrase an error about a message in numbers of rows and names of columns.

        :param error_message: the message of an error, with messages by position, such as ``messages[0].to``.
        """

        def place(match: re.Match[str]) -> str:
            part = "name" if match[3] == "name" else match[2]
            column = self._named.get(part or "")
            row = f"row {int(match[1]) + 1}"
            if column:
                return f"{row}, column {column!r}"
            return f"{row}.{part}" if part else row

        translated = re.sub(r"\bmessages\[(\d+)\](?:\.(\w+))?(?:\[\d+\])?(?:\.(email|name))?", place, error_message)
        return re.sub(r"^SendBatch: (?=row )", "sql: ", translated)

    def _people(self, number: int, row: Sequence[Any]) -> dict[str, Any]:
        if row[self._at["to"]] in (None, ""):
            raise MailValidationError(f"sql: row {number}, column {self._named['to']!r}: is empty")
        to = {"email": row[self._at["to"]]}
        if "name" in self._at and row[self._at["name"]] not in (None, ""):
            to["name"] = row[self._at["name"]]
        copies = {part: self._addresses(number, part, row) for part in ("cc", "bcc") if part in self._at}
        return {"to": to, **{part: addresses for part, addresses in copies.items() if addresses}}

    def _addresses(self, number: int, part: str, row: Sequence[Any]) -> list[str]:
        text = row[self._at[part]]
        if text is not None and not isinstance(text, str):
            raise MailValidationError(
                f"sql: row {number}, column {self._named[part]!r}: is of type {type(text).__name__}: cast it to text"
            )
        return [address.strip() for address in (text or "").split(",") if address.strip()]


class Recipients:
    """The recipients of one mailing, to detect duplicates.

    A duplicate is in ``to`` of two messages, or twice among ``to``, ``cc`` and ``bcc`` of one; addresses are the same
    if their `address_key` is. The same ``cc`` or ``bcc`` in several messages is intended: an archive, a manager.

    A digest of each address under a random key is stored, and no address.

    :param on_duplicate: ``fail``: collect all duplicates for :meth:`check`; ``skip``: remove them except for the first
        occurrence; ``allow``: count them.
    """

    def __init__(self, on_duplicate: str) -> None:
        self._skip = on_duplicate == "skip"
        self._fail = on_duplicate == "fail"
        self._keyed = hashlib.blake2b(digest_size=16, key=secrets.token_bytes(16))
        self._database = private_database("seen (digest BLOB PRIMARY KEY, message INTEGER)")
        self._named: list[str] = []
        self.count = 0

    def are_new(self, messages: Numbered) -> bool:
        """Add the recipients of messages; return whether none is a duplicate: else check each message."""
        people = ((person, number) for number, version in messages for person in version.get("to", ()))
        rows = [(digest, number) for person, number in people if (digest := self._digest(person)) is not None]
        added = self._database.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", rows).rowcount
        return added == len(rows) and not any("cc" in version or "bcc" in version for _, version in messages)

    def without_duplicates(self, number: int, version: dict[str, Any]) -> dict[str, Any] | None:
        """Return the message without removed recipients; ``None`` when ``to`` becomes empty."""
        in_message: set[bytes] = set()
        kept = dict(version)
        for part in ("to", "cc", "bcc"):
            if people := version.get(part):
                new = [person for person in people if not self._seen(person, number, part, in_message)]
                if self._skip and len(new) < len(people):
                    kept[part] = new
        return kept if kept.get("to") or not version.get("to") else None

    def check(self) -> None:
        """Reject the mailing when it has duplicates and ``on_duplicate`` is ``fail``.

        :raises MailValidationError: naming the first ones by their position.
        """
        if self._fail and self.count:
            more = f"; and {self.count - len(self._named):,} more" if self.count > len(self._named) else ""
            raise MailValidationError(
                f"SendBatch: {'; '.join(self._named)}{more}. {self.count:,} duplicate recipients: nothing was "
                "sent. on_duplicate_recipient='skip' mails each recipient once, 'allow' mails all"
            )

    def close(self) -> None:
        self._database.close()

    def _digest(self, person: Any) -> bytes | None:
        email = _mapping(person).get("email")
        if not isinstance(email, str):
            return None
        digest = self._keyed.copy()
        digest.update(address_key(email).encode("utf-8", "surrogatepass"))
        return digest.digest()

    def _seen(self, person: Any, number: int, part: str, in_message: set[bytes]) -> bool:
        """Return whether the recipient is a duplicate, and count it; ``in_message``: digests of the same message."""
        if (digest := self._digest(person)) is None:
            return False
        first = number
        if digest not in in_message:
            in_message.add(digest)
            if part == "to":
                self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (digest, number))
                ((first,),) = self._database.execute("SELECT message FROM seen WHERE digest = ?", (digest,))
            if first == number:
                return False
        self.count += 1
        if len(self._named) < MAX_NAMED_DUPLICATES:
            reason = "twice in this message" if first == number else f"the same recipient as messages[{first}]"
            self._named.append(f"messages[{number}].{part}: {reason}")
        return True
