"""What comes back: taking an answer in within bounds, and judging what it means. No I/O."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pydantic_core

from airflow_provider_mail.api._core.requests import MailRequest, MailResponse
from airflow_provider_mail.api._core.retry import retry_after_seconds
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import (
    MailAnswerError,
    MailAnswerLostError,
    MailAuthError,
    MailConfigError,
    MailRateLimitError,
    MailRejectedError,
    MailServerError,
)

R = TypeVar("R", bound=MailResponse)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | bytearray = field(repr=False)


def judge(request: MailRequest[R], answer: Answer, hidden: Collection[str] = (), max_memory: float = math.inf) -> R:
    """The response in an answer.

    The body's ``code`` counts where there is one, the HTTP status otherwise (document, "Conventions", 3); the HTTP
    statuses 401 and 429 count whatever the body says. A rejection (4xx) without a ``code`` is somebody else's page: a
    proxy may put it in place of any response, so it does not say what became of the request.

    :param hidden: secrets that the service's words must not show, should it repeat what it was sent.
    :param max_memory: bytes that the decoded body may take.
    :raises MailError: whatever the answer says that is not success.
    """
    operation, status = request.path, answer.status
    if 200 <= status < 300 and (response := request.decode(answer.body)) is not None:
        return response
    if takes_more_memory(answer.body, max_memory):
        raise MailAnswerError(
            f"{operation}: the answer holds so many values that they would take more than {max_memory} bytes of "
            "memory: ask for less at once",
            operation=operation,
        )
    body = _json_object(answer.body)
    code = _code(body)
    message = _message(body, hidden, request)
    if code == 200 and 200 <= status < 300:
        assert body is not None
        return request.read({**body, "code": code, "message": message})
    if 300 <= status < 400:
        raise MailConfigError(
            f"{operation}: the address answers with a redirect (HTTP {status}), which is not followed: "
            "set the connection's host to the final address",
            operation=operation,
            status=status,
        )
    verdict = status if code in (None, 200) or status in (401, 429) else code
    contradiction = code == 200 and status < 500
    assert verdict is not None
    where = f"{operation}: " + (f"code {code}" if verdict == code else f"HTTP {status}")
    said = f": {message}" if message else ""
    details: dict[str, Any] = {
        "operation": operation,
        "status": status,
        "code": code,
        "service_message": message or None,
    }
    if contradiction:
        raise MailAnswerError(f"{where} with code 200, which means success: they contradict each other", **details)
    if verdict == 429:
        asked = retry_after_seconds(answer.headers)
        raise MailRateLimitError(f"{where}: too many requests{said}", retry_after=asked, **details)
    if verdict == 401:
        raise MailAuthError(
            f"{where}: the service refused the credentials{said}. Check the connection's password (API key) or "
            "access_token, and that auth_type fits",
            **details,
        )
    if verdict == 408:
        raise MailAnswerLostError(f"{where}: the service gave up waiting{said}", **details)
    if verdict == 413 and code is None:
        # A proxy's page as well, but sending the same again is pointless; half of it may pass.
        rejection = MailRejectedError(f"{where}: refused, the request is too large for a proxy{said}", **details)
        rejection.may_have_taken_effect = True
        raise rejection
    if 400 <= verdict < 500 and code not in (None, 200):
        raise MailRejectedError(f"{where}: refused{said}", **details)
    if status < 500 and code is None:
        kind = "no JSON object" if body is None else "an object without a whole-number code"
        raise MailAnswerError(
            f"{where} with {kind} instead of the service's answer: is the connection's host the service's address, "
            "without a proxy's page in between?",
            **details,
        )
    asked = retry_after_seconds(answer.headers)
    raise MailServerError(f"{where}: the service failed{said}", retry_after=asked, **details)


def _json_object(body: bytes | bytearray) -> dict[str, Any] | None:
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError:
        try:
            # NaN and halves of surrogate pairs are no JSON, but one in one field must not make the whole unreadable:
            # whoever needs the field refuses it by its name.
            value = json.loads(body.decode())
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _code(body: Mapping[str, Any] | None) -> int | None:
    code = None if body is None else body.get("code")
    if isinstance(code, str) and re.fullmatch(r"\s*-?[0-9]{1,9}\s*", code):
        return int(code)
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    is_code = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 1_000_000_000
    return code if is_code else None


_WORD = re.compile(r"[^\s<>\"'(),;:=]+")


def _message(body: Mapping[str, Any] | None, hidden: Collection[str], request: MailRequest[Any]) -> str:
    """What the service says, in one short line without what it may have repeated of a request: secrets, people.

    The sender that the request names is shown: an address that a company writes from is no personal data.
    """
    message = None if body is None else body.get("message")
    if not isinstance(message, str) or not message:
        return ""
    message = message[:10_000]
    for word in request.personal():
        if len(word) > 2 and word in message:
            message = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "***", message)
    for secret in hidden:
        message = message.replace(secret, "***")
    senders = {sender.casefold() for sender in request.senders()}
    message = _WORD.sub(lambda word: "***" if _is_address(word[0], senders) else word[0], message)
    return " ".join("".join(character if character.isprintable() else " " for character in message).split())[:300]


def _is_address(word: str, but: Collection[str]) -> bool:
    return "@" in word[1:-1] and word.rstrip(".!?").casefold() not in but


MEMORY_RATIO = 4
"""So many times ``max_answer_bytes`` may an answer take in memory when it is decoded."""

# Bytes in memory, roughly and rather too many: of an object with its model, of a field with its name, of other values.
_MEMORY = ((b"{", 700), (b":", 100), (b",", 64), (b"[", 64))
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
_PART = re.compile(rb'(?:[^"]*+"(?:[^"\\]++|\\.?)*+"?){1,10000}+|[^"]++', re.DOTALL)
"""So many texts with what stands before them: some megabytes of memory to take them out, at the speed of ``re``."""


def takes_more_memory(body: bytes | bytearray, most: float) -> bool:
    """Whether the values of a JSON text may take more memory than allowed.

    They can take thirty times the text's size, and that a thousand times what was received: ``{},{},{}``.
    """
    if _memory(body) <= most:
        return False
    # What stands in texts does not count: contents of mails are full of these characters.
    needed = end = 0
    for part in _PART.finditer(body):
        needed += _memory(_TEXT.sub(b"", part[0]))
        end = part.end()
        if needed > most:
            return True
    return needed + _memory(body[end:]) > most


def _memory(body: bytes | bytearray) -> int:
    return sum(body.count(mark) * size for mark, size in _MEMORY)


class BodyReader:
    """Takes an answer's body in piece by piece and unpacks it, within bounds of size.

    httpx would unpack a piece whole, a thousand times its size. What cannot be unpacked is kept as it came: it is no
    JSON, so the status decides.

    :param headers: the answer's.
    """

    def __init__(self, operation: str, config: ClientConfig, status: int, headers: Mapping[str, str]) -> None:
        self._operation = operation
        self._most = config.max_answer_bytes
        self._status = status
        self._headers = headers
        packed = headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip")
        self._unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if packed else None
        self._body = bytearray()
        self._received = 0

    def feed(self, piece: bytes) -> None:
        """Keep a piece.

        :raises MailAnswerError: when the body is too large.
        """
        self._received += len(piece)
        unpacked = self._unpack(piece)
        if max(self._received, len(self._body) + len(unpacked)) > self._most:
            raise MailAnswerError(
                f"{self._operation}: the answer is larger than {self._most} bytes", operation=self._operation
            )
        self._body += unpacked

    def _unpack(self, piece: bytes) -> bytes:
        if self._unpacker is None:
            return piece
        try:
            return self._unpacker.decompress(piece, self._most - len(self._body) + 1)
        except zlib.error:
            self._unpacker = None
            return piece

    def answer(self) -> Answer:
        """The whole answer."""
        return Answer(self._status, self._headers, self._body)
