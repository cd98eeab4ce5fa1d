"""Checks what the messages of a mailing would show: texts that are blank, and tags without a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api._core.blank import is_blank, is_blank_html
from airflow_provider_mail.api._core.tags import tags_of
from airflow_provider_mail.api.errors import MailValidationError

if TYPE_CHECKING:
    from airflow_provider_mail.api.templates import Template

MAX_NAMED = 20


class MessageCheck:
    """The check of one mailing. It only counts problems, so memory use is constant.

    :param common: the fields that all messages share.
    :param things: what the mailing consists of, for errors.
    :param allow_blank: whether a message may show nothing.
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
        self._missing: Counter[tuple[str, str]] = Counter()
        self._first: dict[tuple[str, str], int] = {}
        self._given: dict[str, None] = {}
        self._messages = 0

    def keep(self, number: int, version: dict[str, Any]) -> dict[str, Any]:
        """Check a message; return it without the missing values of tags, so that those of all messages apply.

        :param number: index of the message, from 0.
        :param version: the message, not validated.
        :raises MailValidationError: naming a text of the message that is blank, or a template that does not exist.
        """
        self._messages += 1
        params = _mapping(version.get("params"))
        filled = {tag for tag, value in params.items() if not _is_missing(value)}
        for tag in filled:
            if len(self._given) < MAX_NAMED:
                self._given[tag] = None
        for field, text in self._texts(number, version):
            tags = self._tags.get(text)
            for tag in tags_of(text) if tags is None else tags:
                if tag not in filled and tag not in self._defaults and tag not in self._service_tags():
                    self._missing[tag, field] += 1
                    self._first.setdefault((tag, field), number)
        if len(filled) == len(params):
            return version
        # JSON's null is not text. Blank text is left out only if a common value replaces it.
        kept = {
            tag: value for tag, value in params.items() if tag in filled or not (value is None or tag in self._defaults)
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

    def _texts(self, number: int, version: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the texts that the message may show: if the specification leaves open which, all of them."""
        place = f"messages[{number}]"
        own = {name: version[name] for name in ("subject", "content", "template_name") if name in version}
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
    return params if isinstance(params, Mapping) else {}


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and is_blank(value))
