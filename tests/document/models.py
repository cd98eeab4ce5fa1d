"""Finds the models by what the specification says, never by their names."""

from __future__ import annotations

import copy
import functools
import importlib
import json
import pkgutil
import types
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

import airflow_provider_mail.api as api
from airflow_provider_mail.api import MailRequest
from tests.document.fact_types import YES, Fact, Operation
from tests.document.facts import OPERATIONS

AUTHORIZE = "oauth.authorize"

REQUESTS = tuple(operation for operation in OPERATIONS if operation.key != AUTHORIZE)
"""Every operation that is a request of ours; consent is given in a browser, which only needs the address."""


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def _all_models() -> list[type[MailRequest[Any]]]:
    for module in pkgutil.iter_modules(api.__path__):
        importlib.import_module(f"{api.__name__}.{module.name}")
    ours = {model: None for model in _subclasses(MailRequest) if model.__module__.startswith(f"{api.__name__}.")}
    concrete = (model for model in ours if not model.__pydantic_generic_metadata__["args"])
    return [model for model in concrete if not any(sub in ours and not _is_variant(sub) for sub in _subclasses(model))]


def _is_variant(model: type[MailRequest[Any]]) -> bool:
    """Whether it is another way to send a public request."""
    return model.__name__ not in api.__all__ or any(
        base.__name__ in api.__all__ and hasattr(base, "path") for base in model.__mro__[1:]
    )


def request_models() -> tuple[type[MailRequest[Any]], ...]:
    """The request classes of the package that a user can send: nothing derives from them."""
    return tuple(model for model in _all_models() if not _is_variant(model))


def private_models() -> tuple[type[MailRequest[Any]], ...]:
    """Other ways in which the package itself sends an operation."""
    return tuple(model for model in _all_models() if _is_variant(model))


def wire_names(model: type[BaseModel]) -> dict[str, str]:
    """Wire name to attribute name."""
    return {_wire_name(field) or name: name for name, field in model.model_fields.items()}


def _wire_name(field: FieldInfo) -> str | None:
    alias = field.validation_alias
    alias = alias.choices[0] if isinstance(alias, AliasChoices) else alias
    assert alias is None or isinstance(alias, str)
    return alias or field.alias


def form(wires: set[str]) -> str:
    return "batch" if "messageVersions" in wires else "single" if "to" in wires else ""


_BY_KEY = {operation.key: operation for operation in OPERATIONS}
_MODELS = {
    (model.method, model.path, form(set(wire_names(model)))): model  # sends_customised has two shapes
    for model in request_models()
}


def model_of(operation: Operation) -> type[MailRequest[Any]]:
    return _MODELS[operation.method, operation.path, form({fact.wire for fact in operation.request})]


def operation_of(key: str) -> Operation:
    return _BY_KEY[key]


def field_of(model: type[BaseModel], fact: Fact) -> FieldInfo:
    return model.model_fields[wire_names(model)[fact.wire]]


def nested_model(annotation: Any) -> type[BaseModel]:
    """The one model inside an annotation such as ``list[X] | None``."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        assert issubclass(annotation, BaseModel), annotation
        return annotation
    arguments = (one for one in get_args(annotation) if one is not type(None))
    (model,) = (one for one in arguments if get_args(one) or isinstance(one, type))
    return nested_model(model)


def json_type(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """The type of a JSON schema in the words of the facts."""
    if "$ref" in schema:
        return json_type(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        (given,) = (part for part in schema["anyOf"] if part.get("type") != "null")
        return json_type(given, definitions)
    if schema["type"] == "array":
        return f"array of {json_type(schema['items'], definitions).partition(' ')[0]}"
    return str(schema["type"])


# A field of a request, wherever it is nested.

Steps = tuple[str | int, ...]


def walk(facts: tuple[Fact, ...], above: Steps = ()) -> Iterator[tuple[Steps, Fact]]:
    """Every field with the steps that lead to it; the first item stands for all items of an array."""
    for fact in facts:
        steps = (*above, fact.wire)
        yield steps, fact
        yield from walk(fact.fields, (*steps, 0) if fact.type.startswith("array") else steps)


SMALLEST = {
    "utc": "2026-01-31T09:00:00Z", "date": "2026-01-31", "email": "ada@example.com", "base64": "eA==",
    "http_url": "https://hooks.example/in", "http_url_or_empty": "https://hooks.example/in", "alphanumeric": "Spring1",
    "not_a_top_level_domain": "shop.example", "not_empty": "ada@example.com",
    "string": "x", "integer": 1, "boolean": True, "object": {"tag": "value"}, "array of string": ["x"],
    "array of array": [["x"]],
}  # fmt: skip


def smallest(fact: Fact) -> Any:
    """A smallest value of a field that the specification allows."""
    if fact.fields:
        value = {inner.wire: smallest(inner) for inner in fact.fields if inner.required == YES}
        return value if fact.type == "object" else [value]
    if fact.enum:
        return [fact.enum[0]] if fact.type.startswith("array") else fact.enum[0]
    if not fact.format and fact.wire == "phoneNumber":
        return "+441234"
    is_address = not fact.format and fact.wire.endswith(("Mail", "mail", "replyTo"))
    return SMALLEST["email" if is_address else fact.format or fact.type]


def body_with(operation: Operation, steps: Steps, value: Any) -> dict[str, Any]:
    """The operation's minimal body with one value changed; what leads there is made when it is missing."""
    body: dict[str, Any] = copy.deepcopy(operation.minimal)
    facts, here = operation.request, body
    for step in steps[:-1]:
        if isinstance(step, str):
            fact = next(fact for fact in facts if fact.wire == step)
            if not here.get(step):
                here[step] = smallest(fact)
            facts = fact.fields
        here = here[step]  # type: ignore[index]
    here[steps[-1]] = value  # type: ignore[index]
    return body


def documented_value(operation: Operation, steps: Steps, fact: Fact) -> Any:
    """The value that the minimal body has there, or else a smallest one."""
    here: Any = operation.minimal
    for step in steps:
        here = here.get(step) if isinstance(step, str) and here else here[step] if here else None
    return smallest(fact) if here is None else here


def body_without(operation: Operation, steps: Steps) -> dict[str, Any]:
    body = body_with(operation, steps, None)
    above: Any = functools.reduce(lambda here, step: here[step], steps[:-1], body)
    del above[steps[-1]]
    return body


def sent(operation: Operation, body: dict[str, Any]) -> Any:
    """What would be sent for a request that was built from a wire body: a query or a JSON object."""
    request = model_of(operation).model_validate(body)
    return request.query() if operation.method == "GET" else json.loads(request.payload())


def spelled(operation: Operation, steps: Steps) -> str:
    """Where an error message places a field: attributes joined by dots, positions in brackets."""
    model: type[BaseModel] = model_of(operation)
    where = ""
    for position, step in enumerate(steps):
        if isinstance(step, int):
            where += f"[{step}]"
            continue
        attribute = wire_names(model)[step]
        where += f".{attribute}" if where else attribute
        if position < len(steps) - 1:
            model = nested_model(model.model_fields[attribute].annotation)
    return where
