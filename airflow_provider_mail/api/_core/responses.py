"""Responses without I/O: read a body within its size limit, and parse it into a response or an error.

The compact form of a record is derived from its model: its fields and ``other_fields`` without its methods, in a
fraction of the time and memory; or only those fields that a caller needs. It accepts only values that have the declared
type already. A response with other values is left to the model, which reads more forms and reports what is wrong.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, get_args

import msgspec
import pydantic_core
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from airflow_provider_mail.api._core.fields import address_key, epoch_millis, exact_times, service_time
from airflow_provider_mail.api._core.pacing import retry_after_seconds
from airflow_provider_mail.api._core.requests import MailRequest, MailResponse, OpenResource
from airflow_provider_mail.api.errors import (
    MailAuthError,
    MailConfigError,
    MailError,
    MailRateLimitError,
    MailRejectedError,
    MailResponseError,
    MailResponseLostError,
    MailServerError,
    MailTooLargeError,
)

R = TypeVar("R", bound=MailResponse)
Request = TypeVar("Request", bound=MailRequest[Any])


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | bytearray = field(repr=False)


_LESS = "request less at once: fewer days of a window (start_day, end_day, lookback_days), or a smaller page_size"


def parse_response(
    request: MailRequest[R], http_response: HttpResponse, secrets: Collection[str] = (), max_memory: float = math.inf
) -> R:
    """Parse a response, or raise the error that it reports.

    The body's ``code`` determines the result if there is one, otherwise the HTTP status (specification, "Conventions",
    3); the HTTP statuses 401 and 429 take precedence. A 4xx without a ``code`` is a proxy's page: but for 413, it may
    replace any response, so it does not show whether the request was carried out.

    :param secrets: texts that are masked in the service's message, which may repeat the request.
    :param max_memory: maximum estimated size of the decoded body in bytes.
    """
    operation, status, raw_body = request.path, http_response.status, http_response.body
    if exceeds_memory(raw_body, max_memory):
        raise MailTooLargeError(
            f"{operation}: the response has so many values that decoding it would take more than {max_memory} bytes of "
            f"memory: {_LESS}",
            operation=operation,
        )
    if 200 <= status < 300 and (response := request.decode(raw_body)) is not None:
        return response
    body = _json_object(raw_body)
    code = _code(body)
    message = _service_message(body, secrets, request)
    if code == 200 and 200 <= status < 300:
        assert body is not None
        return request.read({**body, "code": code, "message": message})
    missing = "no JSON object" if body is None else "an object without a whole-number code"
    raise _error(operation, http_response, code, message, missing)


def _error(operation: str, response: HttpResponse, code: int | None, message: str, missing: str) -> MailError:
    """Return the error that a response reports.

    :param missing: what the response has instead of a ``code``, if ``code`` is ``None``.
    """
    status = response.status
    if 300 <= status < 400:
        return MailConfigError(
            f"{operation}: the response is a redirect (HTTP {status}), which is not followed: "
            "set the connection's host to the final address",
            operation=operation,
            status=status,
        )
    result = status if code in (None, 200) or status in (401, 429) else code
    assert result is not None
    prefix = f"{operation}: " + (f"code {code}" if result == code else f"HTTP {status}")
    text = f": {message}" if message else ""
    details: dict[str, Any] = {
        "operation": operation,
        "status": status,
        "code": code,
        "service_message": message or None,
    }
    if code == 200 and status < 500:
        return MailResponseError(f"{prefix} contradicts code 200, which means success", **details)
    retry_after = retry_after_seconds(response.headers)
    if result == 429:
        return MailRateLimitError(f"{prefix}: too many requests{text}", retry_after=retry_after, **details)
    if result == 401:
        advice = (
            "Check the connection's password (API key) or access_token, and auth_type; renew an OAuth token with: "
            "airflow mail oauth login"
        )
        return MailAuthError(f"{prefix}: the service rejected the credentials{text}. {advice}", **details)
    if result == 408:
        return MailResponseLostError(f"{prefix}: the service timed out{text}", **details)
    if result == 413 and code is None:
        # A proxy says this of a request that it does not pass on.
        return MailRejectedError(f"{prefix}: rejected, the request is too large for a proxy{text}", **details)
    if 400 <= result < 500 and code not in (None, 200):
        return MailRejectedError(f"{prefix}: rejected{text}", **details)
    if status < 500 and code is None:
        return MailResponseError(
            f"{prefix} with {missing} instead of the service's response: check that the connection's host is the "
            "service's address and that no proxy's page replaces the response",
            **details,
        )
    return MailServerError(f"{prefix}: the service failed{text}", retry_after=retry_after, **details)


def _json_object(body: bytes | bytearray) -> dict[str, Any] | None:
    try:
        if _has_long_decimal(body):
            raise ValueError
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError:
        try:
            # NaN and lone surrogates are not JSON. In a field that is not used, they must not fail the whole response;
            # in other fields, validation reports them with the field's name. Long decimals keep their digits.
            value = json.loads(body.decode(), parse_float=exact_number)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


_FLOAT_DIGITS = 15
"""A float represents every decimal number of at most this many digits exactly enough to restore it."""
_FRACTION = re.compile(rb"\.[0-9]+")


def exact_number(text: str) -> float | Decimal:
    number, exact = float(text), Decimal(text)
    return number if number - number != 0 or Decimal(repr(number)) == exact else exact


def _has_long_decimal(body: bytes | bytearray) -> bool:
    """Return whether a JSON text may have a decimal number of more digits than a float keeps."""
    for fraction in _FRACTION.finditer(body):
        start = fraction.start()
        whole = body[max(0, start - _FLOAT_DIGITS) : start]
        if len(whole) - len(whole.rstrip(b"0123456789")) + len(fraction[0]) - 1 > _FLOAT_DIGITS:
            return True
    return False


def _code(body: Mapping[str, Any] | None) -> int | None:
    code = None if body is None else body.get("code")
    if isinstance(code, str) and re.fullmatch(r"\s*-?[0-9]{1,9}\s*", code):
        return int(code)
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    is_code = isinstance(code, int) and not isinstance(code, bool) and abs(code) < 1_000_000_000
    return code if is_code else None


_MAX_MESSAGE_CHARACTERS = 300
_WORD = re.compile(r"[^\s<>\"'(),;:=]+")


def _service_message(body: Mapping[str, Any] | None, secrets: Collection[str], request: MailRequest[Any]) -> str:
    """Return the service's message as one short line, with secrets and personal data of the request masked.

    The request's sender is shown: a company's sender address is not personal data.
    """
    message = None if body is None else body.get("message")
    if not isinstance(message, str) or not message:
        return ""
    words = [word for word in request.pii_values() if len(word) > 2]
    is_cut, message = len(message) > 10_000, message[:10_000]
    for word in words:
        if word in message:
            message = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "***", message)
    for secret in secrets:
        message = message.replace(secret, "***")
    senders = {address_key(sender) for sender in request.senders()}
    message = _WORD.sub(lambda word: "***" if _is_address(word[0], senders) else word[0], message)
    if is_cut:
        # A secret, a word or an address that was cut at the end was not masked: remove as much text as one may have.
        message = message[: -max(map(len, [*secrets, *words]), default=0) - 320]
    printable = "".join(character if character.isprintable() else " " for character in message)
    one_line = " ".join(printable.split())
    return one_line[:_MAX_MESSAGE_CHARACTERS]


def _is_address(word: str, exceptions: Collection[str]) -> bool:
    return "@" in word[1:-1] and address_key(word.rstrip(".!?")) not in exceptions


MEMORY_RATIO = 4
"""A decoded response may take this multiple of ``max_response_bytes`` in memory."""

# Estimated bytes in memory, deliberately high: an object with its model, a field with its name, other values.
_BYTES_PER_MARK = ((b"{", 700), (b":", 100), (b",", 64), (b"[", 64))
_MOST_BYTES = 260
"""The most for a byte of JSON, in ``[{},{},{}``: no mark of a smaller text needs to be counted."""
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)
_PART = re.compile(rb'(?:[^"]*+"(?:[^"\\]++|\\.?)*+"?){1,10000}+|[^"]++', re.DOTALL)
"""Up to 10,000 strings with what precedes them: removing the strings of one part takes a few megabytes."""


def exceeds_memory(body: bytes | bytearray, max_memory: float) -> bool:
    """Return whether the values of a JSON text may take more memory than allowed.

    Values can take thirty times the size of the text (``{},{},{}``), which can be a thousand times the received size.
    """
    if _MOST_BYTES * len(body) <= max_memory or _estimated_memory(body) <= max_memory:
        return False
    # Do not count inside strings: the contents of mails have many of these characters.
    needed = end = 0
    for part in _PART.finditer(body):
        needed += _estimated_memory(_TEXT.sub(b"", part[0]))
        end = part.end()
        if needed > max_memory:
            return True
    return needed + _estimated_memory(body[end:]) > max_memory


def _estimated_memory(body: bytes | bytearray) -> int:
    return sum(body.count(mark) * size for mark, size in _BYTES_PER_MARK)


def read_body(operation: str, headers: Mapping[str, str], chunks: Iterable[bytes], max_bytes: int) -> bytearray:
    """Collect and decompress the body of a response, within the size limit.

    httpx would decompress a whole chunk, to a thousand times its size. A body that cannot be decompressed is kept
    unchanged: it is not JSON, so the status decides.

    :raises MailTooLargeError: when the body is too large.
    """
    compressed = headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip")
    decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS) if compressed else None
    body, received = bytearray(), 0
    for chunk in chunks:
        received += len(chunk)
        if decompressor is not None:
            try:
                chunk = decompressor.decompress(chunk, max_bytes - len(body) + 1)
            except zlib.error:
                decompressor = None
        if max(received, len(body) + len(chunk)) > max_bytes:
            raise MailTooLargeError(
                f"{operation}: the response is larger than {max_bytes} bytes: {_LESS}", operation=operation
            )
        body += chunk
    return body


_TIMES: dict[Any, Any] = {service_time: str | None, epoch_millis: int | None}
"""What parses the times of a model, with the type that is sent."""

_OTHER_FIELDS = " other fields of this record "
"""The name of ``other_fields`` in a response: one that no service uses, so that only `_RecordDecoder` sets it."""

_decode_fields = msgspec.json.Decoder(dict[str, Any], float_hook=exact_number).decode


def compact_records(request: Request, fields: tuple[str, ...] | None = None) -> Request:
    """Return the same request, whose response has compact records if all of them have the documented form.

    :param request: a request whose response has a list of records.
    :param fields: the only fields that the records are to have. Default: all, and ``other_fields``.
    """
    compact_class = _compact_class(type(request), fields)
    compact: Request = compact_class.model_construct(request.model_fields_set, **dict(request))
    return compact


@cache
def _compact_class(request_class: Any, fields: tuple[str, ...] | None) -> Any:
    decoded = _ResponseDecoder(request_class.response, fields)

    class Compact(request_class):  # type: ignore[misc]
        def decode(self, body: bytes | bytearray) -> Any:
            return decoded(body)

    return Compact


class _ResponseDecoder:
    def __init__(self, response: type[MailResponse], fields: tuple[str, ...] | None) -> None:
        self._response = response
        models = {name: _record_model(field.annotation) for name, field in response.model_fields.items()}
        ((self._records, model),) = ((name, model) for name, model in models.items() if model)
        self._record = _RecordDecoder(model, fields)
        self._names = models.keys() - {"code", "message"}
        self._decode, self._decode_open = self._decoder(self._record.documented), self._decoder(msgspec.Raw)

    def _decoder(self, record: Any) -> Callable[[bytes | bytearray], Any]:
        types = {self._records: list[record] | None}
        fields = [
            (name, types.get(name, annotation), declared)
            for name, annotation, declared in _declared(self._response)
            if name in self._names
        ]
        struct = msgspec.defstruct("CompactResponse", [("code", int), *fields], kw_only=True)
        return msgspec.json.Decoder(struct, dec_hook=_validate).decode

    def __call__(self, body: bytes | bytearray) -> MailResponse | None:
        try:
            response = self._decoded(body)
            self._record.parse_times(getattr(response, self._records) or ())
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
            return None
        if response.code != 200:
            return None
        return self._response.model_construct(**{name: getattr(response, name) for name in self._names})

    def _decoded(self, body: bytes | bytearray) -> Any:
        try:
            return self._decode(body)
        except msgspec.ValidationError:  # The records have undocumented fields, or are invalid.
            response = self._decode_open(body)
            records = getattr(response, self._records) or ()
            setattr(response, self._records, [self._record.decode_open(text) for text in records])
            return response


class _CompactRecord(msgspec.Struct, gc=False):
    other_fields: dict[str, Any] | None = msgspec.field(name=_OTHER_FIELDS, default=None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"  # may hold personal data


class _RecordDecoder:
    def __init__(self, model: type[OpenResource], only: tuple[str, ...] | None) -> None:
        name, declared = f"Compact{model.__name__}", {"model_fields": model.model_fields}
        fields = [field for field in _declared(model) if only is None or field[0] in only]
        compact_record = msgspec.defstruct(
            name, fields, bases=(_CompactRecord,), namespace=declared, kw_only=True, gc=False
        )
        # Without unknown fields, or where these do not matter: decoded in one step, with the response.
        self.documented = msgspec.defstruct(
            name, (), bases=(compact_record,), gc=False, forbid_unknown_fields=only is None
        )
        self._decode = msgspec.json.Decoder(compact_record, dec_hook=_validate).decode
        self._known = {field.encode_name for field in msgspec.structs.fields(compact_record)}
        self._times = {field[0]: parse for field in fields if (parse := _parser(model.model_fields[field[0]]))}

    def decode_open(self, text: msgspec.Raw) -> Any:
        """Decode a record that may have undocumented fields."""
        record: Any = self._decode(text)
        fields = _decode_fields(text)
        record.other_fields = {name: value for name, value in fields.items() if name not in self._known} or None
        return record

    def parse_times(self, records: Any) -> None:
        """Parse the times of the records.

        :raises ValueError: one of them is not a time.
        """
        for name, parse in self._times.items():
            values = [*map(attrgetter(name), records)]
            for record, time in zip(records, exact_times(values) or map(parse, values), strict=True):
                setattr(record, name, time)


def _validate(model: Any, value: Any) -> Any:
    return model.model_validate(value, by_alias=True, by_name=False)


def _declared(model: type[BaseModel]) -> Iterator[tuple[str, Any, Any]]:
    """Declare the fields of a model as msgspec needs them."""
    for name, declared in model.model_fields.items():
        parse = _parser(declared)
        default = {} if declared.is_required() else {"default": declared.default}
        if declared.default_factory is not None:
            default = {"default_factory": declared.default_factory}
        yield name, _TIMES[parse] if parse else declared.annotation, msgspec.field(name=declared.alias, **default)


def _parser(field: FieldInfo) -> Any:
    """Return what parses a time, of a field that is one."""
    for validator in field.metadata:
        assert isinstance(validator, BeforeValidator), f"{validator}: only the model checks this"
        if validator.func in _TIMES:
            return validator.func
    return None


def _record_model(annotation: Any) -> type[OpenResource] | None:
    if isinstance(annotation, type) and issubclass(annotation, OpenResource):
        return annotation
    return next(filter(None, map(_record_model, get_args(annotation))), None)
