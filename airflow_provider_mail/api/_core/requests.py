"""What a request and a response are. One class is one operation; nothing else knows its path.

A request class says everything about its operation: path, fields with their limits, response, effect, and by having
the field ``sandbox_mode`` that it takes ``sandboxMode`` (document, "Conventions", 5).
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from airflow_provider_mail.api._core.fields import FORMS, WholeNumber
from airflow_provider_mail.api.errors import MailAnswerError, MailValidationError, describe_validation_error

log = logging.getLogger(__name__)


class Effect(Enum):
    """What carrying out a request twice would do, and so whether it is repeated when an answer is lost."""

    READ = "read"
    """Changes nothing: repeated."""
    REPEATABLE = "repeatable"
    """Twice is the same as once: repeated."""
    CREATE = "create"
    """Makes something with a name: never repeated blind; the name is looked up first."""
    DELETE = "delete"
    """Removes or cancels: repeated; gone after a lost answer is success."""
    SEND = "send"
    """Cannot be looked up and must not happen twice: never repeated."""

    @property
    def repeatable(self) -> bool:
        """Whether the request may be sent again after an answer was lost."""
        return self in (Effect.READ, Effect.REPEATABLE, Effect.DELETE)


PII_FIELDS = frozenset(
    {"email", "name", "phone_number", "properties", "params", "contact_data", "rcpt_emails", "repel_emails", "ip"}
)
"""Fields that say who somebody is."""

SENDERS = ("sender_mail", "sender_email", "from_domain")
"""Fields that hold a sender's address. It belongs to the company, not to a person, so messages show it."""


class RedactedRepr(BaseModel):
    """Its ``repr``, which ends up in logs and tracebacks, says nothing of people."""

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, "***" if name in PII_FIELDS and value else value


class Resource(RedactedRepr):
    """Something the service returns. Unknown fields are ignored: the service may add some."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True, hide_input_in_errors=True
    )


class Part(RedactedRepr):
    """A part of a request, such as an attachment. Unknown fields are errors: they are typing mistakes."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        loc_by_alias=False,
        # With any rule on its length pydantic looks at the text itself: half a surrogate pair, which has no form in
        # UTF-8, is refused by the name of its field rather than by a crash when the body is encoded.
        str_min_length=0,
    )


class MailResponse(Resource):
    """The answer to every operation: ``code`` is 200 here, every other code is an error."""

    code: int = 200
    message: str | None = None


R_co = TypeVar("R_co", bound=MailResponse, covariant=True)
T = TypeVar("T")


class MailRequest(Part, Generic[R_co]):
    """Base of all requests; ``class X(MailRequest[XResponse])`` declares the response.

    :raises MailValidationError: on construction, naming every field that is wrong.
    """

    method: ClassVar[Literal["POST", "GET"]] = "POST"
    path: ClassVar[str]
    effect: ClassVar[Effect]
    response: ClassVar[type[MailResponse]] = MailResponse
    authenticated: ClassVar[bool] = True

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for base in cls.__bases__:
            for argument in getattr(base, "__pydantic_generic_metadata__", {}).get("args", ()):
                if isinstance(argument, type) and issubclass(argument, MailResponse):
                    cls.response = argument

    def __init__(self, **fields: Any) -> None:
        # Here and not in a validator: only here are the errors of all of them, subclasses' included, in one place.
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
        """The JSON body: camelCase, without the fields that were not given."""
        return self.model_dump_json(by_alias=True, exclude_none=True).encode()

    def personal(self) -> Iterator[str]:
        """What it says of people, text by text: the service may repeat it in its answer."""
        yield from _texts(self.model_dump(), wanted=False)

    def senders(self) -> list[str]:
        """The sender addresses that it names."""
        given = (getattr(self, name, None) for name in SENDERS)
        return [address for address in given if isinstance(address, str)]

    def query(self) -> dict[str, str]:
        """The same fields as query parameters, for the two operations that are ``GET``."""
        return cast(dict[str, str], self.model_dump(mode="json", by_alias=True, exclude_none=True))

    def decode(self, body: bytes | bytearray) -> R_co | None:
        """Decode a successful response directly into its type; ``None`` leaves it to :meth:`read`."""
        return None

    def read(self, answer: Mapping[str, Any]) -> R_co:
        """The typed response.

        :param answer: the JSON object of an answer whose ``code`` is 200.
        :raises MailAnswerError: naming the fields that are missing or of the wrong type.
        """
        try:
            response = cast(R_co, self.response.model_validate(answer))
        except ValidationError as error:
            raise MailAnswerError(
                f"{self.path}: the answer does not have the documented form: {describe(error)}", operation=self.path
            ) from None
        if response.message and self.effect is not Effect.READ:
            # The document has a message for errors only; there may be rows that were left out without one.
            log.warning("%s: the service reports success with a message: %s", self.path, response.message)
        return response


class Sandboxed(Part):
    """Mixin of the operations that take ``sandboxMode``: checked and reported on, nothing changes."""

    sandbox_mode: bool | None = None


Item = TypeVar("Item")

Records = Annotated[list[Item], Field(fail_fast=True)]
"""A list in an answer. The first wrong record is named and the rest left alone: a million complaints would take
gigabytes.
"""


class PageResponse(MailResponse, Generic[Item]):
    """One page of a list; subclasses say which field holds the records."""

    total_records: WholeNumber | None = None

    @property
    def records(self) -> Sequence[Item]:
        raise NotImplementedError

    @staticmethod
    def identity(record: Item) -> object:
        """What makes a record another one: used to notice pages that come twice."""
        raise NotImplementedError


P_co = TypeVar("P_co", bound=PageResponse[Any], covariant=True)


class PagedRequest(MailRequest[P_co], Generic[P_co]):
    """A request that is read page by page (``pageIndex`` counts from 1)."""

    page_size: int | None = Field(default=None, ge=1)
    page_index: int | None = Field(default=None, ge=1)


@dataclass(frozen=True, slots=True)
class Pause:
    """A step of a flow: wait so many seconds."""

    seconds: float


Flow: TypeAlias = Generator[MailRequest[Any] | Pause, Any, T]
"""Several requests in a row, written once for both clients.

The generator yields requests and pauses; each request's response is sent back in, each error is thrown in. Run it
with ``client.run(flow)`` or ``await client.run(flow)``.
"""


def _texts(value: Any, *, wanted: bool) -> Iterator[str]:
    """The texts in fields that say who somebody is."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, wanted=wanted or name in PII_FIELDS)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, wanted=wanted)
    elif wanted and isinstance(value, str):
        yield value


def describe(error: ValidationError) -> str:
    """Describe what is wrong with which field, without the values."""
    return describe_validation_error(error, FORMS)
