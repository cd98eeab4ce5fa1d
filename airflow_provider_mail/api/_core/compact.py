"""Decode the records of a response in one step, without building a model of each.

The compact form of a record is derived from its model: its fields and ``other_fields`` without its methods, in a
fraction of the time and memory; or only those fields that a caller needs. It accepts only values that have the declared
type already. A response with other values is left to the model, which reads more forms and reports what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from airflow_provider_mail.api._core.fields import epoch_millis, service_time
from airflow_provider_mail.api._core.requests import MailRequest, MailResponse, OpenResource
from airflow_provider_mail.api._core.responses import exact_number

Request = TypeVar("Request", bound=MailRequest[Any])

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
    class Compact(request_class):  # type: ignore[misc]
        def decode(self, body: bytes | bytearray) -> Any:
            return compact_decoder(request_class.response, fields)(body)

    return Compact


@cache
def compact_decoder(response: Any, fields: tuple[str, ...] | None = None) -> Callable[[bytes | bytearray], Any]:
    """Return a function that decodes the body of a response; it returns ``None`` for what is left to the model.

    :param fields: see :func:`compact_records`.
    """
    return _ResponseDecoder(response, fields)


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
            for name, annotation, declared in _fields(self._response)
            if name in self._names
        ]
        # The model reads a field by either name. Values under the other one do not fit this type.
        others = [(f"_{name}", None, msgspec.field(name=name, default=None)) for name in _python_names(self._response)]
        struct = msgspec.defstruct("CompactResponse", [("code", int), *fields, *others], kw_only=True)
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
        fields = [field for field in _fields(model) if only is None or field[0] in only]
        compact_record = msgspec.defstruct(
            name, fields, bases=(_CompactRecord,), namespace=declared, kw_only=True, gc=False
        )
        # Without unknown fields, or where these do not matter: decoded in one step, with the response.
        self.documented = msgspec.defstruct(
            name, (), bases=(compact_record,), gc=False, forbid_unknown_fields=only is None
        )
        self._decode = msgspec.json.Decoder(compact_record, dec_hook=_validate).decode
        self._known = {field.encode_name for field in msgspec.structs.fields(compact_record)}
        self._python_names = _python_names(model)
        self._times = {field[0]: parse for field in fields if (parse := _parser(model.model_fields[field[0]]))}

    def decode_open(self, text: msgspec.Raw) -> Any:
        """Decode a record that may have undocumented fields.

        :raises ValueError: the model reads one of these as one that it declares.
        """
        record: Any = self._decode(text)
        fields = _decode_fields(text)
        if not self._python_names.isdisjoint(fields):
            raise ValueError("a field has its name in Python")
        record.other_fields = {name: value for name, value in fields.items() if name not in self._known} or None
        return record

    def parse_times(self, records: Any) -> None:
        """Parse the times of the records.

        :raises ValueError: one of them is not a time.
        """
        for name, parse in self._times.items():
            for record in records:
                setattr(record, name, parse(getattr(record, name)))


def _validate(model: Any, value: Any) -> Any:
    return model.model_validate(value)


def _fields(model: type[BaseModel]) -> Iterator[tuple[str, Any, Any]]:
    """Declare the fields of a model as msgspec needs them."""
    for name, field in model.model_fields.items():
        parse = _parser(field)
        default = {} if field.is_required() else {"default": field.default}
        if field.default_factory is not None:
            default = {"default_factory": field.default_factory}
        yield name, _TIMES[parse] if parse else field.annotation, msgspec.field(name=field.alias, **default)


def _parser(field: FieldInfo) -> Any:
    """Return what parses a time, of a field that is one."""
    for validator in field.metadata:
        assert isinstance(validator, BeforeValidator), f"{validator}: only the model checks this"
        if validator.func in _TIMES:
            return validator.func
    return None


def _python_names(model: type[BaseModel]) -> set[str]:
    return {name for name, field in model.model_fields.items() if name != field.alias}


def _record_model(annotation: Any) -> type[OpenResource] | None:
    if isinstance(annotation, type) and issubclass(annotation, OpenResource):
        return annotation
    return next(filter(None, map(_record_model, get_args(annotation))), None)
