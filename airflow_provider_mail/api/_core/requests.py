"""The base classes of requests and responses. One request class declares one operation.

It declares the path, the fields with their limits, the response, the effect and, with the field ``sandbox_mode``, that
the operation takes ``sandboxMode`` (specification, "Conventions", 5).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from airflow_provider_mail.api._core.fields import PATTERN_MESSAGES, Day, WholeNumber
from airflow_provider_mail.api._core.pacing import ServiceClock
from airflow_provider_mail.api.config import ClientConfig
from airflow_provider_mail.api.errors import (
    MailError,
    MailResponseError,
    MailValidationError,
    describe_validation_error,
)

__all__ = ["MailRequest", "MailResponse"]

log = logging.getLogger(__name__)


class Effect(Enum):
    """The effect of repeating a request, which determines whether it is repeated after its response was lost."""

    READ = "read"
    """Changes nothing. Is repeated."""
    REPEATABLE = "repeatable"
    """Has the same effect twice as once. Is repeated."""
    CREATE = "create"
    """Creates an object with a name. Is repeated only after a lookup of the name."""
    DELETE = "delete"
    """Deletes or cancels. Is repeated; if the repetition is rejected, the client checks whether an earlier attempt took
    effect."""
    SEND = "send"
    """Cannot be looked up and must not happen twice. Is never repeated."""

    @property
    def repeatable(self) -> bool:
        """Whether the request may be sent again after its response was lost."""
        return self in (Effect.READ, Effect.REPEATABLE, Effect.DELETE)


PII_FIELDS = frozenset(
    {"email", "name", "phone_number", "properties", "params", "contact_data", "rcpt_emails", "repel_emails", "ip"}
)
"""Fields with personal data."""

SENDER_FIELDS = ("sender_mail", "sender_email", "from_domain")
"""Fields with a sender's address. Such an address belongs to a company, not to a person, so messages show it."""


class RedactedRepr(BaseModel):
    """Base of models whose ``repr``, which may appear in logs and tracebacks, masks personal data."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, "***" if name in PII_FIELDS and value else value


class Resource(RedactedRepr):
    """Base of objects that the service returns. Unknown fields are ignored: the service may add fields."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )


class OpenResource(Resource, extra="allow"):
    """Base of records whose unknown fields are kept, since the service may add fields."""

    @property
    def other_fields(self) -> dict[str, Any] | None:
        """The fields that the model does not declare, as the service names them; ``None`` if there are none."""
        return self.model_extra or None

    def dump_declared(self) -> dict[str, Any]:
        """Return the fields that the model declares and the record has, as JSON values."""
        return self.model_dump(mode="json", include=set(type(self).model_fields), exclude_none=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        # Unknown fields may hold personal data.
        for name, value in super().__repr_args__():
            yield name, "***" if self.model_extra and name in self.model_extra else value


class RequestModel(RedactedRepr):
    """Base of requests and of their parts, such as an attachment. Unknown fields are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        loc_by_alias=False,
        # With any limit on the length, pydantic validates the text itself: a lone surrogate, which UTF-8 cannot encode,
        # is reported with the name of its field instead of failing when the body is encoded.
        str_min_length=0,
    )


class MailResponse(Resource):
    """Base of all responses. ``code`` is always 200: every other code raises an error."""

    code: int = 200
    message: str | None = None


R_co = TypeVar("R_co", bound=MailResponse, covariant=True)


class MailRequest(RequestModel, Generic[R_co]):
    """Base of all requests; ``class X(MailRequest[XResponse])`` declares the response.

    :raises MailValidationError: on construction, naming every field that is wrong.
    """

    method: ClassVar[Literal["POST", "GET"]] = "POST"
    path: ClassVar[str]
    effect: ClassVar[Effect]
    response: ClassVar[type[MailResponse]] = MailResponse
    authenticated: ClassVar[bool] = True
    lookup_is_authoritative: ClassVar[bool] = False
    """Of a deletion: whether a lookup that does not find the resource proves that it does not exist."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for base in cls.__bases__:
            for argument in getattr(base, "__pydantic_generic_metadata__", {}).get("args", ()):
                if isinstance(argument, type) and issubclass(argument, MailResponse):
                    cls.response = argument

    def __init__(self, **fields: Any) -> None:
        """Check the fields.

        :param fields: values by name, in Python's or the wire's spelling.
        """
        # Not in a validator: only here are the errors of all validators, including those of subclasses, available.
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise MailValidationError(
                f"{type(self).__name__}: {describe(error)}", operation=getattr(self, "path", None)
            ) from None

    @property
    def takes_sandbox(self) -> bool:
        """Whether the operation has a ``sandboxMode`` parameter."""
        return "sandbox_mode" in type(self).model_fields

    def payload(self) -> bytes:
        """Return the JSON body: camelCase names, without fields that are ``None``."""
        return self.model_dump_json(by_alias=True, exclude_none=True).encode()

    def pii_values(self) -> Iterator[str]:
        """Yield the texts that are personal data: the service may repeat them in its message."""
        yield from personal_values(self.model_dump())

    def senders(self) -> list[str]:
        values = (getattr(self, name, None) for name in SENDER_FIELDS)
        return [address for address in values if isinstance(address, str)]

    def find(self, client: Client) -> Any:
        """Look up the resource of exactly the name that the request creates or deletes; ``None`` if there is none."""
        raise NotImplementedError

    def differences(self, existing: Any) -> list[str]:
        """Return the fields of a creation in which an existing resource differs."""
        return []

    def exists(self, client: Client) -> bool:
        """Return whether the lookup finds the resource that the request deletes."""
        return self.find(client) is not None

    def took_effect(self, client: Client) -> bool:
        """Return whether an earlier attempt, whose response was lost, carried out a deletion that is now rejected."""
        return not self.exists(client)

    def query(self) -> dict[str, str]:
        """Return the fields as query parameters, for the operations that use ``GET``."""
        return cast(dict[str, str], self.model_dump(mode="json", by_alias=True, exclude_none=True))

    def decode(self, body: bytes | bytearray) -> R_co | None:
        """Decode a successful response directly into its type; ``None`` leaves it to :meth:`read`."""
        return None

    def read(self, fields: Mapping[str, Any]) -> R_co:
        """Validate a successful response.

        :raises MailResponseError: naming the fields that are missing or of the wrong type.
        """
        try:
            response = cast(R_co, self.response.model_validate(fields, by_alias=True, by_name=False))
        except ValidationError as error:
            raise MailResponseError(
                f"{self.path}: the response does not have the documented form: {describe(error)}", operation=self.path
            ) from None
        if response.message and self.effect is not Effect.READ:
            # The specification shows messages only for errors; this one may report rows that were left out.
            log.warning("%s: the service reports success with a message: %s", self.path, response.message)
        return response


class Sandboxed(RequestModel):
    """Mixin of operations that take ``sandboxMode``.

    :param sandbox_mode: check the request and report whether it would succeed, without changing anything. Default: the
        connection's ``sandbox``.
    """

    sandbox_mode: bool | None = None


class DateWindow(RequestModel):
    """Mixin of operations on a window of calendar days.

    :param start_date: first day in UTC, ``YYYY-MM-DD``.
    :param end_date: last day, included.
    """

    start_date: Day
    end_date: Day

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.end_date < self.start_date:
            raise ValueError(f"end_date: {self.end_date} is before start_date {self.start_date}")
        return self


Item = TypeVar("Item")

Records = Annotated[list[Item], Field(fail_fast=True)]
"""A list in a response. Only the first invalid record is reported: a million errors would take gigabytes."""


class PageResponse(MailResponse, Generic[Item]):
    """One page of a list."""

    records_field: ClassVar[str]
    """The field that holds the records."""

    total_records: WholeNumber | None = None

    @property
    def records(self) -> list[Item]:
        return getattr(self, self.records_field) or []

    @staticmethod
    def identity(record: Any) -> object:
        """Return what identifies a record, to detect repeated pages."""
        raise NotImplementedError


P_co = TypeVar("P_co", bound=PageResponse[Any], covariant=True)


class PagedRequest(MailRequest[P_co], Generic[P_co]):
    """A request whose list is read page by page.

    :param page_size: maximum number of records per page. Default: the service's.
    :param page_index: number of the page, from 1. Default: 1.
    """

    page_size: int | None = Field(default=None, ge=1)
    page_index: int | None = Field(default=None, ge=1)


R = TypeVar("R", bound=MailResponse)


class Client(Protocol):
    """What an operation of several requests needs of its first argument, mostly a `MailClient`."""

    config: ClientConfig
    service_clock: ServiceClock

    def send(self, request: MailRequest[R]) -> R: ...

    def send_all(self, requests: Sequence[MailRequest[R]]) -> list[R | MailError]: ...

    def open_ahead(self) -> None: ...

    def pause(self, seconds: float) -> None: ...


def personal_values(value: Any, *, personal: bool = False) -> Iterator[str]:
    """Yield the texts of fields with personal data.

    :param personal: whether all of the value is.
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from personal_values(item, personal=personal or name in PII_FIELDS)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from personal_values(item, personal=personal)
    elif personal and isinstance(value, str):
        yield value


def describe(error: ValidationError) -> str:
    """Describe what is wrong with which field, without the values."""
    return describe_validation_error(error, PATTERN_MESSAGES)
