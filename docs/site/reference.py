"""The reference pages of the site: one for each public module, read from the source, so nothing is imported.

The public names are those of the table in ``public.md``, which a test compares with the package.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "airflow_provider_mail"
EMULATOR = "mail_emulator"
SECTIONS = {
    "Operators": "operators.",
    "Transfers": "transfers.",
    "Sensors": "sensors.",
    "Triggers": "triggers.",
    "Hook": "hooks.",
    "Notifications and mail": ("notifications.", "utils."),
    "Arguments in groups, assets, lineage, links and retries": (
        "arguments",
        "assets",
        "lineage",
        "links",
        "retry_policy",
    ),
    "Safe sending": ("send_window", "hold"),
    "Client and requests": "api",
    "Source for dlt": "dlt_source",
    "Emulator": EMULATOR,
}
WITH_METHODS = ("hooks.mail", "lineage", "api", EMULATOR)
"""Where methods are public too: those of operators, sensors and triggers are Airflow's business."""


@dataclass(frozen=True)
class Public:
    """A public name.

    :param module: module that it is imported from, below the package; of the emulator its package.
    :param name: the name.
    :param source: what the source says of it.
    """

    module: str
    name: str
    source: griffe.Object

    @property
    def page(self) -> str:
        """The page that it is on: that of its module; the many names of ``api`` by the module that defines them."""
        if self.module != "api":
            return self.module
        defined = self.source.path.removeprefix(f"{PACKAGE}.api.").split(".")
        return f"api.{'requests' if defined[0] == '_core' else defined[0]}"

    @property
    def full_module(self) -> str:
        """The module that it is imported from."""
        return self.module if self.module == EMULATOR else f"{PACKAGE}.{self.module}"

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        text = self.source.docstring.value if self.source.docstring else ""
        return " ".join(text.split("\n\n")[0].split())

    @property
    def kind(self) -> str:
        """Directive and role of Sphinx's Python domain."""
        if isinstance(self.source, griffe.Class):
            return "exception" if is_error(self.source) else "class"
        return "function" if isinstance(self.source, griffe.Function) else "data"


@cache
def package(name: str = PACKAGE) -> griffe.Object:
    """Return a package, read from its source."""
    paths = [ROOT, ROOT / "emulator"]
    return original(griffe.load(name, search_paths=paths, resolve_aliases=True, resolve_external=False))


@cache
def public_names() -> list[Public]:
    """Return everything that the table of ``public.md`` lists."""
    table = (ROOT / "docs" / "public.md").read_text().partition("<!-- names -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(rf"^\| `(?:{PACKAGE}\.)?([\w.]+)` \| (.*) \|$", table, re.MULTILINE)
    return [
        Public(module, name, original(package(EMULATOR)[name] if module == EMULATOR else package()[f"{module}.{name}"]))
        for module, names in rows
        for name in re.findall(r"`(\w+)`", names)
    ]


def original(source: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return what an imported or inherited name stands for.

    :param source: an object, or its name in another place.
    """
    return source.final_target if isinstance(source, griffe.Alias) else source


def guides() -> dict[str, list[tuple[str, str]]]:
    """Return the labels that docstrings refer to, with the names that they stand for, by the page that has them."""
    found: dict[str, list[tuple[str, str]]] = {}
    for each in public_names():
        text = each.source.docstring.value if each.source.docstring else ""
        for label, page in re.findall(rf":ref:`(howto/\S+)`\s+\(in the package: ``{PACKAGE}/(\S+)``\)", text):
            found.setdefault(page, []).append((label, each.name))
    return found


def write(folder: Path, also: list[str]) -> None:
    """Write the pages.

    :param folder: where to; made when missing.
    :param also: other pages of this section.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pages: dict[str, list[Public]] = {}
    for each in public_names():
        pages.setdefault(each.page, []).append(each)
    for page, members in pages.items():
        module = members[0].full_module
        lines = [page, "=" * len(page), "", f"Import from ``{module}``.", ""]
        described = page if page == EMULATOR else f"{PACKAGE}.{page}"
        lines += [f".. py:module:: {described}", "", f".. py:currentmodule:: {module}", ""]
        (folder / f"{page}.rst").write_text("\n".join([*lines, *(line for each in members for line in entry(each))]))
    (folder / "index.rst").write_text("\n".join(index(pages, also)))


def index(pages: dict[str, list[Public]], also: list[str]) -> Iterator[str]:
    """Yield the lines of the first page: every public name with its summary.

    :param pages: public names by the page that they are on.
    :param also: other pages of this section.
    """
    yield from ("Reference", "=========", "")
    yield from (f"Every public name. See also {', '.join(f':doc:`/{page}`' for page in also)}.", "")
    for section, prefix in SECTIONS.items():
        mine = {page: members for page, members in pages.items() if members[0].module.startswith(prefix)}
        yield from (section, "-" * len(section), "")
        if prefix == "api":
            yield from (f".. py:module:: {PACKAGE}.api", "")
        yield from (".. toctree::", "   :hidden:", f"   :caption: {section}", "")
        yield from (f"   {page}" for page in mine)
        yield from ("", ".. list-table::", "   :widths: 40 60", "   :class: names", "")
        for each in (each for members in mine.values() for each in members):
            yield f"   * - :py:obj:`{each.name} <{each.full_module}.{each.name}>`"
            yield f"     - {each.summary}"
        yield ""
    yield from (".. toctree::", "   :hidden:", "   :caption: Also", "")
    yield from (f"   /{page}" for page in also)


def entry(each: Public) -> Iterator[str]:
    """Yield the lines of a name's description.

    :param each: the name.
    """
    yield from described(each.kind, each.name, each.source, methods=each.module in WITH_METHODS)


def described(kind: str, name: str, source: griffe.Object, methods: bool = False) -> Iterator[str]:
    """Yield a directive with signature, docstring and members.

    :param kind: directive of the Python domain.
    :param name: the name that is shown.
    :param source: what the source says of it.
    :param methods: with public methods and properties.
    """
    yield from (f".. py:{kind}:: {name}{signature(source)}", "")
    if kind == "exception" and name != "MailError":
        bases = source.bases if isinstance(source, griffe.Class) else []
        yield from (f"   Bases: {', '.join(f':py:class:`{base}`' for base in bases)}", "")
    if source.docstring:
        yield from textwrap.indent(source.docstring.value, "   ").splitlines()
        yield ""
    for line in (*operation(source), *members(source, methods)):
        yield textwrap.indent(line, "   ")


def operation(source: griffe.Object) -> Iterator[str]:
    """Yield what a request class declares: path, effect, and the fields of the response.

    :param source: any object.
    """
    if not isinstance(source, griffe.Class) or "effect" not in source.all_members:
        return
    method, path, effect = (original(source.all_members[name]) for name in ("method", "path", "effect"))
    if effect.value is None:  # the base of all requests
        return
    meaning = package()[f"api._core.requests.{effect.value}"].docstring.value
    yield from (
        f"``{constant(method)} {constant(path)}``, effect ``{str(effect.value).rpartition('.')[2]}``. {meaning}",
        "",
    )
    bases = " ".join(str(base) for each in (source, *source.mro()) for base in each.bases)
    name = next(iter(re.findall(r"\[(\w*(?:Response|Page))\]", bases)), "MailResponse")
    response = original(package()[source.resolve(name).removeprefix(f"{PACKAGE}.")])
    if own := [each for each in fields(response) if each.name not in ("code", "message")]:
        yield from (f"The response, a ``{name}``, has these fields:", "")
        yield from (f"- ``{each.name}: {each.annotation}``" for each in own)
        yield ""


def constant(member: griffe.Object) -> str:
    """Return the text that an attribute has: its own, or that of the constant that it names.

    :param member: the attribute.
    """
    value = str(getattr(member, "value", ""))
    if value.isidentifier() and member.parent is not None:
        return constant(original(package()[member.parent.resolve(value).removeprefix(f"{PACKAGE}.")]))
    return value.strip("'\"")


def members(source: griffe.Object, methods: bool) -> Iterator[str]:
    """Yield the descriptions of a class's members: those of an enumeration, or its public methods and properties.

    :param source: the class.
    :param methods: with public methods and properties, except of models and exceptions.
    """
    if not isinstance(source, griffe.Class):
        return
    if is_enum(source):
        for name, member in source.members.items():
            if isinstance(member, griffe.Attribute) and not name.startswith("_"):
                yield from (f".. py:attribute:: {name}", f"   :value: {member.value}", "")
        return
    for name, member in source.all_members.items() if methods and not is_model(source) and not is_error(source) else ():
        member = original(member)
        if name.startswith("_") or not member.docstring or not member.path.startswith((PACKAGE, EMULATOR)):
            continue
        if isinstance(member, griffe.Function):
            yield from described("method", name, member)
        elif "property" in member.labels:
            yield from described("property", name, member)


def is_enum(source: griffe.Class) -> bool:
    """Whether a class is an enumeration.

    :param source: the class.
    """
    return any("Enum" in str(base) for base in source.bases)


def is_error(source: griffe.Class) -> bool:
    """Whether a class is an exception.

    :param source: the class.
    """
    return source.name.endswith("Error")


def is_model(source: griffe.Class) -> bool:
    """Whether a class is a pydantic model: its arguments are its fields.

    :param source: the class.
    """
    return any("BaseModel" in str(base) for each in (source, *source.mro()) for base in each.bases)


def signature(source: griffe.Object) -> str:
    """Return the arguments as the source declares them.

    :param source: a class or a function; other objects have none.
    """
    if isinstance(source, griffe.Class):
        if is_enum(source):
            return ""
        if is_model(source):
            return f"({', '.join(['*', *map(field, own)])})" if (own := fields(source)) else "()"
        init = (source.members if is_error(source) else source.all_members).get("__init__")
        if init is None:
            return "" if is_error(source) else "()"
        return arguments(original(init))
    if isinstance(source, griffe.Function):
        return arguments(source) + (f" -> {source.returns}" if source.returns is not None else "")
    return ""


def fields(model: griffe.Class) -> list[griffe.Attribute]:
    """Return the fields of a model, with those of its bases.

    :param model: the class.
    """
    found = {
        name: member
        for each in (*reversed(model.mro()), model)
        for name, member in each.members.items()
        if "instance-attribute" in member.labels and member.annotation and not name.startswith("_")
    }
    return list(found.values())


def field(member: griffe.Attribute) -> str:
    """Return a model's field as an argument.

    :param member: the field.
    """
    default = "..." if str(member.value).startswith("Field(") else member.value
    return f"{member.name}: {member.annotation}" + (f" = {default}" if default is not None else "")


def arguments(function: griffe.Function) -> str:
    """Return the arguments of a function, without ``self``.

    :param function: the function.
    """
    shown: list[str] = []
    for each in function.parameters:
        if each.name in ("self", "cls"):
            continue
        if each.kind is griffe.ParameterKind.keyword_only and not any(one.startswith("*") for one in shown):
            shown.append("*")
        star = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(each.kind, "")
        annotation = f": {each.annotation}" if each.annotation is not None else ""
        default = f" = {each.default}" if each.default is not None and not star else ""
        shown.append(f"{star}{each.name}{annotation}{default}")
    return f"({', '.join(shown)})"
