"""What tasks share: arguments, the hook of the connection, the meaning of errors, checks before mail is sent."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import inf
from pathlib import PurePath
from traceback import format_exception
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

from airflow.sdk import XComArg
from airflow.sdk.definitions.mappedoperator import OperatorPartial

from airflow_provider_mail._task.checks import (
    INCOMPLETE,
    PACKAGE,
    RenderingMixin,
    argument_error,
    declared,
    is_empty_option,
    newly_blank,
    problems,
    set_upstream_of_groups,
    unwrap,
)
from airflow_provider_mail._task.rules import SEEN_ARGUMENTS, Rule
from airflow_provider_mail.api.errors import MailError, MailValidationError, chain_of, clear_frames
from airflow_provider_mail.api.flows.waits import RECONNECT_SECONDS
from airflow_provider_mail.version_compat import (
    AirflowFailException,
    AirflowSkipException,
    is_from_mapped,
    mark_expanded,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api._core.requests import RequestModel
    from airflow_provider_mail.hold import HoldCheck
    from airflow_provider_mail.hooks.mail import MailHook
    from airflow_provider_mail.send_window import SendWindow

    P = TypeVar("P", bound=RequestModel)


log = logging.getLogger(__name__)


T = TypeVar("T")

Templated: TypeAlias = T | str | XComArg
"""What a template field takes when the DAG is parsed: its value, a template of it, or the result of another task.

``sender_mail: Templated[str]`` accepts text and XComArgs and rejects a number; ``send_date: Templated[datetime]`` also
accepts a template. The items of a list or dictionary may be XComArgs, too: ``Templated[Sequence[Templated[str]]]``.
"""

OnEmpty: TypeAlias = Literal["error", "skip", "continue"]
"""What to do when there are no rows or messages."""

CONTENT_FILES = (".html", ".htm", ".txt")
"""File name extensions of files with content."""

SEND_WINDOW_KEY = "airflow_provider_mail.send_window"
"""The key of the send window in the task state store."""

GUARDED = (
    "/v5/campaign/mail/sends", "/v5/transactional/mail/sends_customised", "/v5/contacts/imports", "/v5/contacts/delete",
)  # fmt: skip
"""The paths of the requests that mail many people, import them, or delete those who left."""


class CheckedPartial(OperatorPartial):
    """The result of ``partial``; it checks the values that the DAG file passes to ``expand`` and ``expand_kwargs``."""

    operator_class: type[Any]

    def expand(self, **mapped_kwargs: Any) -> Any:
        lists = ((name, values) for name, values in mapped_kwargs.items() if isinstance(values, list | tuple))
        given = [{name: value} for name, values in lists for value in values]
        self._check(given)
        return self._follow_groups(super().expand(**mapped_kwargs), given)

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> Any:
        items = kwargs if isinstance(kwargs, list | tuple) else ()
        given = [values for values in items if isinstance(values, Mapping)]
        self._check(given)
        return self._follow_groups(super().expand_kwargs(kwargs, strict=strict), given)

    def _check(self, given: Sequence[Mapping[str, Any]]) -> None:
        mark_expanded(self)
        for arguments in given:
            self.operator_class.check_arguments(arguments)

    def _follow_groups(self, mapped: Any, given: Sequence[Mapping[str, Any]]) -> Any:
        for arguments in (self.kwargs, *given):
            set_upstream_of_groups(mapped, arguments)
        return mapped


class MailTaskMixin(RenderingMixin):
    """Mixin for operators, sensors and transfers.

    The signature of ``__init__`` declares the arguments; those whose type is :data:`Templated` are template fields::

        def __init__(self, *, list_name: Templated[str], sandbox_mode: bool = False, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.set_arguments(**locals())

    ``rules`` says which values an argument of that name accepts; a test compares the rules with the types.
    """

    template_fields: Collection[str] = ()
    mail_conn_id: str
    sandbox_mode = False
    clock_offset = 0.0
    """Seconds by which the service's clock was ahead at the last :meth:`ask`."""
    allow_blank = False
    required_texts: ClassVar[tuple[str, ...]] = ()
    """Arguments that may be left out only with ``allow_blank``."""
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Arguments that users may expect but that the class does not have, with what to write instead."""
    _connected_at = -inf
    _arguments: tuple[str, ...] = ()
    _written: Mapping[str, Any] = MappingProxyType({})
    """The arguments that people see, as the DAG file writes them."""

    def __init__(self, **kwargs: Any) -> None:
        # Without it, Airflow would apply BaseOperator's signature and defaults to base classes without an `__init__`.
        self._check_names(kwargs)
        # Sensors pass on those that Airflow calculates with.
        rules: Mapping[str, Rule] = declared(type(self))  # type: ignore[arg-type]
        self.check_arguments({name: kwargs[name] for name in kwargs.keys() & rules.keys()})
        super().__init__(**kwargs)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        # A subclass of a user says itself which of its arguments are templates.
        if cls.__module__.startswith(PACKAGE) and "__init__" in own and "template_fields" not in own:
            types = inspect.unwrap(own["__init__"]).__annotations__
            cls.template_fields = tuple(name for name, written in types.items() if "Templated[" in written)

    def set_arguments(self, /, **arguments: Any) -> None:
        """Set an attribute for each argument of ``__init__``, durations in seconds; a class may override it for checks.

        :param arguments: ``locals()`` of ``__init__``: whatever is not an argument of the class is left out.
        :raises ValueError: naming each argument whose value is known and wrong.
        """
        rules: Mapping[str, Rule] = declared(type(self))  # type: ignore[arg-type]
        arguments = {name: arguments[name] for name in rules}
        self.check_arguments(arguments, mapped=is_from_mapped(self))
        for name, value in arguments.items():
            if isinstance(value, PurePath) and type(value).__module__.startswith("pathlib"):
                value = str(value)  # Airflow would call its method resolve(), as it does with the output of a task.
            elif isinstance(value, timedelta):
                value = value.total_seconds()
            setattr(self, name, from_file(value) if SEEN_ARGUMENTS.get(name) == "html" else value)
        if not is_from_mapped(self):
            set_upstream_of_groups(self, arguments)
        self._arguments = tuple(arguments)
        self._written = {
            name: value for name, value in arguments.items() if name in SEEN_ARGUMENTS and value is not None
        }

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any], *, mapped: bool = False) -> None:
        """Check the values that are known when the DAG file is parsed.

        :param arguments: by name; not all need to be given.
        :param mapped: whether they are those of a mapped task, which is created when it runs: a retry would not help.
        :raises ValueError: naming each argument that is wrong.
        """
        messages = list(problems(cls, arguments))
        # A mapped task may pass any of them to each of its instances.
        if not messages and arguments.get("allow_blank", ...) is False and not arguments.get("only_save", False):
            missing = [name for name in cls.required_texts if arguments.get(name, ...) in (None, "")]
            messages += [f"{name}: is missing; give it, or set allow_blank=True" for name in missing]
        if messages:
            raise argument_error("; ".join(messages), mapped=mapped)

    @classmethod
    def _check_names(cls, arguments: Mapping[str, Any]) -> None:
        for name in arguments.keys() & cls.elsewhere.keys():
            raise TypeError(f"{name}: {cls.elsewhere[name]}")

    def argument_error(self, problem: str) -> Exception:
        return argument_error(problem, mapped=is_from_mapped(self))

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """Make a mapped task, with Airflow's ``partial``.

        :raises ValueError: naming each argument whose value is known and wrong.
        """
        cls._check_names(kwargs)
        cls.check_arguments(kwargs)
        partial = super().partial(**kwargs)  # type: ignore[misc]
        mark_expanded(partial)  # it is replaced
        return CheckedPartial(operator_class=partial.operator_class, kwargs=partial.kwargs, params=partial.params)

    def request_fields(self, model: type[RequestModel]) -> dict[str, Any]:
        """Return the arguments for which a request has fields, by name.

        A flag that is off and empty text for an optional field are left out of the request. A text that recipients see
        is never left out: ``allow_blank`` permits empty text.
        """
        names = [name for name in self._arguments if name in model.model_fields]
        values = {name: unwrap(getattr(self, name)) for name in names}
        if values.get("attachment") is not None:
            from airflow_provider_mail._task.storage import attachment

            values["attachment"] = attachment(values["attachment"])
        owner = type(self)
        return {
            name: None if value is False or is_empty_option(owner, name, value) else value
            for name, value in values.items()
        }

    def build_request(self, model: type[P], **fields: Any) -> P:
        """Build the request from the arguments.

        :param fields: fields that are not arguments, or whose values differ from the arguments.
        :raises MailValidationError: naming each field that is wrong; or ``sandbox_mode``, if the operation has none.
        """
        if self.sandbox_mode and "sandbox_mode" not in model.model_fields:
            raise MailValidationError(f"sandbox_mode: {model.__name__} has no sandboxMode: nothing was sent")
        blank = self.blank_arguments()
        try:
            request = model(**self.request_fields(model) | fields)
        except MailValidationError as error:
            message = f"{blank}. {str(error).removeprefix(f'{model.__name__}: ')}" if blank else str(error)
            raise MailValidationError(message, operation=error.operation) from None
        if blank:
            raise MailValidationError(blank)
        return request

    def blank_arguments(self) -> str:
        """Return the problems of arguments that recipients would see and that render to nothing; empty without any."""
        if "allow_blank" not in self._arguments or self.allow_blank or getattr(self, "only_save", False):
            return ""
        problems = {name: "is missing" for name in self.required_texts if name not in self._written}
        for name, written in self._written.items():
            blank = dict(newly_blank(name, written, unwrap(getattr(self, name))))
            if not blank and name in self._incomplete:
                blank = {name: INCOMPLETE}
            problems |= blank
        if not problems:
            return ""
        return (
            f"{'; '.join(f'{path}: {problem}' for path, problem in problems.items())}; nothing was sent. "
            "Did a template find no value? allow_blank=True sends it nevertheless"
        )

    @cached_property
    def hook(self) -> MailHook:
        """The hook of ``mail_conn_id``, created at first use: in the task, not when the DAG is parsed."""
        from airflow_provider_mail.hooks.mail import MailHook

        hook = MailHook(self.mail_conn_id)
        hook._before_request = self.check_request
        return hook

    def check_request(self, operation: str) -> None:
        """Raise an error if a request must not be sent now. Default: every one may be."""

    def mail_errors(self) -> AbstractContextManager[None]:
        """Return a context manager that turns the errors of the service into those of Airflow."""
        from airflow_provider_mail.api._core.requests import SENDER_FIELDS

        senders = (getattr(self, name, None) for name in SENDER_FIELDS)
        return AirflowErrors(self.mail_conn_id, senders=[address for address in senders if isinstance(address, str)])

    def ask(self, flow: Callable[..., T], *arguments: Any) -> T | MailError:
        """Return what an operation returns for a task that waits, or the `MailError` instead of raising it.

        After a rejection, and repeatedly while temporary errors last, the connection is read again: it may have been
        fixed meanwhile.

        :param flow: a function whose first argument is the client, such as ``find_campaign``.
        """
        if "hook" not in self.__dict__:
            self._connected_at = time.monotonic()
        try:
            result = flow(self.hook.get_conn(), *arguments)
        except MailError as error:
            if not error.temporary or time.monotonic() - self._connected_at >= RECONNECT_SECONDS:
                self.hook.close()
                del self.__dict__["hook"]
            return error
        self.clock_offset = self.hook.get_conn().service_clock.offset
        return result


class SendGuardMixin(MailTaskMixin):
    """Mixin of tasks that create campaigns, send batches or import contacts: no such request is sent while it is held.

    Nor is one sent outside of the send window, by the service's clock. The check is made right before the first byte of
    each HTTP request, also of one that is repeated: by then the rate and a connection have been waited for. Lookups and
    waits are not held: a task still finds, and waits for, a campaign that was created before.
    """

    send_window: SendWindow | None = None
    max_run_age: float | None = None
    on_old_run: Literal["fail", "skip"] = "fail"
    log: Any
    _due: datetime | None = None
    """When the run was due, for ``max_run_age``."""
    _opens: datetime | None = None
    """When the window opens, for a request that the service carries out at once."""
    _closes: datetime | None = None

    @cached_property
    def _check_hold(self) -> HoldCheck:
        from airflow_provider_mail.hold import HoldCheck

        return HoldCheck(self.mail_conn_id)

    def check_request(self, operation: str) -> None:
        """Check whether a request may be sent now; in sandbox mode, every one may.

        :raises MailHeldError: a hold is set, or could not be read.
        :raises MailValidationError: the send window is closed.
        """
        if operation not in GUARDED:
            return
        if self.sandbox_mode or self.hook.config.sandbox:
            return
        if self.max_run_age is not None and self._due is not None:
            age = datetime.now(UTC) - self._due
            if age > timedelta(seconds=self.max_run_age):
                raise (OldRunError if self.on_old_run == "skip" else MailValidationError)(
                    f"max_run_age: this run was due at {self._due:%Y-%m-%dT%H:%M:%SZ}, {age} ago, as in catch-up or a "
                    "backfill: this request was not sent. To let it pass, leave out max_run_age and clear the task, or "
                    "trigger the DAG by hand",
                    operation=operation,
                )
        if self._closes is not None:
            clock = self.hook.get_conn().service_clock
            problem = ""
            if clock.latest() >= self._closes:
                problem = f"closed at {self._closes:%Y-%m-%dT%H:%M:%SZ}"
            elif self._opens is not None and clock.now() < self._opens:
                problem = f"opens at {self._opens:%Y-%m-%dT%H:%M:%SZ}"
            if problem:
                raise MailValidationError(
                    f"send_window: {problem}, by the clock of the service: this request was not sent. To send it in "
                    "the next opening, clear the task",
                    operation=operation,
                )
        self._check_hold(operation)

    def fitted_send_date(self, context: Context) -> Any:
        """Return ``send_date`` within the send window, the same in every try; unchanged if there is no window.

        The first try determines the opening: that of ``send_date``, or else the one that is open or opens next. It is
        stored (Airflow 3.3), so that a retry does not send in a later one. Before Airflow 3.3 a retry determines the
        opening from the start of the DAG run. Clearing the task begins again. One that is invalid is returned for the
        request to reject.

        :raises MailValidationError: the window does not open for more than a year, or the service's time is unknown.
        """
        from pydantic import TypeAdapter, ValidationError

        from airflow_provider_mail._task.state import task_state
        from airflow_provider_mail.api._core.fields import UtcTime
        from airflow_provider_mail.api.lists import GetLists

        self._due = context["dag_run"].run_after
        given = self.send_date or None  # type: ignore[attr-defined]
        try:
            send_date: datetime | None = given and TypeAdapter(UtcTime).validate_python(given)
        except ValidationError:
            return given
        if self.send_window is None:
            return send_date
        clock = self.hook.get_conn().service_clock
        if clock.asked_at is None:
            self.hook.send(GetLists(page_size=1))
        if clock.asked_at is None:
            raise MailValidationError(
                "send_window: the responses of the service have no Date header, so its time is unknown: nothing was "
                "sent. Leave out send_window, and start the DAG when mail may go out"
            )
        state = task_state(context, SEND_WINDOW_KEY)
        ti = context["ti"]
        # Clearing a task changes the number; a retry keeps it.
        begun = {"max_tries": getattr(ti, "max_tries", None), "asked": send_date and send_date.isoformat()}
        record = state.read()
        if record is None or {name: record.get(name) for name in begun} != begun:
            moment = send_date or clock.now()
            if send_date is None and not state.durable and ti.try_number > 1:
                moment = context["dag_run"].start_date or moment
            try:
                opening = self.send_window.opening(moment)
            except ValueError as error:
                raise MailValidationError(str(error)) from None
            first = opening.opens if opening.opens > moment else send_date
            record = begun | {"opens": opening.opens.isoformat(), "closes": opening.closes.isoformat()}
            record["send_date"] = first and first.isoformat()
            state.write(record)
        self._closes = datetime.fromisoformat(record["closes"])
        first = record["send_date"] and datetime.fromisoformat(record["send_date"])
        self._opens = None if first else datetime.fromisoformat(record["opens"])
        self.log.info(
            "Send window: %s, not after %s.", f"to be sent at {first:%Y-%m-%dT%H:%M:%SZ}" if first else "open",
            f"{self._closes:%Y-%m-%dT%H:%M:%SZ}",
        )  # fmt: skip
        return first


class OldRunError(MailValidationError):
    """The run is older than ``max_run_age``, and the task is skipped for that: the request was not sent."""


class AirflowErrors(AbstractContextManager[None]):
    """Leave temporary errors to Airflow's retries, and fail the task at once for all others.

    Airflow logs an error with all its frames and causes, among which the message that helps the user would be lost. So
    a single error is raised, with the frames from here on; its causes are logged at level debug. The service may quote
    the request: addresses are removed from messages, as the local variables are from frames.

    :raises AirflowFailException: instead of an error that is not temporary.
    """

    def __init__(self, mail_conn_id: str, *, senders: Collection[str] = ()) -> None:
        self._connection = f"connection {mail_conn_id!r}"
        self._senders = senders

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        # Not at the top of the module: DAG files import this module.
        from airflow_provider_mail.api._core.fields import without_addresses

        clear_frames(error)
        if not isinstance(error, MailError):
            for link in [*chain_of(error)]:
                if isinstance(link.__cause__, MailError):
                    link.__cause__ = None  # Its message is already a part of the error's own message.
                if isinstance(context := link.__context__, MailError):
                    text = without_addresses(str(context), self._senders)
                    link.__context__ = context.with_text(text).with_traceback(context.__traceback__)
            return
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: %s", self._connection, without_addresses("".join(format_exception(error)), self._senders))
        message = without_addresses(self._message(error), self._senders)
        if error.temporary:
            raise error.with_text(message) from None
        raise (AirflowSkipException if isinstance(error, OldRunError) else AirflowFailException)(message) from None

    def _message(self, error: MailError) -> str:
        """Return the message with the operation last: Airflow's log view cuts an exception off at the right."""
        text = str(error).removeprefix(f"{error.operation}: ")
        if isinstance(error, MailValidationError):
            # An invalid request has nothing to do with the connection.
            text = re.sub(r"^[A-Z]\w+: ", "", text)
        elif not text.startswith("connection "):
            text = f"{self._connection}: {text}"
        known = not error.operation or error.operation in text
        return text if known else f"{text} ({error.operation})"


def from_file(content: Any) -> Any:
    """Turn the name of a file into a template that includes the file; return anything else unchanged.

    Airflow's own ``template_ext`` applies to every template field: a campaign called ``spring.html`` and an attachment
    called ``terms.txt`` would be opened as files. This function applies to one argument, and works in mapped tasks.
    """
    if not isinstance(content, str) or "\n" in content or not content.lower().endswith(CONTENT_FILES):
        return content
    # A text that ends with an address of a page is no file.
    if "://" in content or any(mark in content for mark in "<>{}"):
        return content
    return f"{{% include {content!r} %}}"


def mailing_name(context: Context) -> str:
    """Return the name of a task and its run in the memory: without the map index, which may move."""
    return task_instance_name(context, 230, "*")


def task_instance_name(context: Context, most_bytes: int, item: str = "") -> str:
    """Return a name composed of ``[mail] name_prefix``, dag id, task id, run id and, for a mapped task, what it maps.

    It is the same for every try, and no other task instance has it.

    :param item: what identifies the item of a mapped task. Default: the map index, which is another one's when the
        mapped list moves.
    :param most_bytes: the maximum length in UTF-8; a longer name is cut and ends in a hash of the whole name.
    """
    from airflow_provider_mail._config import name_prefix
    from airflow_provider_mail.api._core.fields import stable_name

    ti = context["ti"]
    # Dag and task ids may contain dots, but no slashes. A run id may contain slashes, which would look like an index.
    run_id = ti.run_id.replace("%", "%25").replace("/", "%2F")
    index = [] if ti.map_index in (None, -1) else [item or str(ti.map_index)]
    name = stable_name(name_prefix() + "/".join([ti.dag_id, ti.task_id, run_id, *index]))
    if len(name.encode()) <= most_bytes:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name.encode()[: most_bytes - len(digest) - 1].decode(errors='ignore')}-{digest}"
