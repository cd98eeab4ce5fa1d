"""Transactional mail: one message, or many personalized ones, at most once."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, Unpack

from airflow_provider_mail._task.checks import RedactedField, unwrap
from airflow_provider_mail._task.mixin import OnEmpty, SendGuardMixin, Templated, mailing_name, task_instance_name
from airflow_provider_mail._task.rules import given_rows
from airflow_provider_mail.operators._base import BaseInterruptibleOperator
from airflow_provider_mail.version_compat import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._audience.remembered import RememberedMailing
    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail._task.at_most_once import Mailing
    from airflow_provider_mail.api.transactional import Chunk, Numbered, SendBatch, SendMail
    from airflow_provider_mail.send_window import SendWindow

__all__ = ["MailSendBatchOperator", "MailSendOperator"]

OnAmbiguous: TypeAlias = Literal["fail", "resend", "skip"]
"""What to do with a request whose outcome is unknown."""

OnDuplicateRecipient: TypeAlias = Literal["fail", "skip", "allow"]
"""What to do when a recipient is repeated."""

OnUnfilledTag: TypeAlias = Literal["fail", "warn"]
"""What to do with a tag that has no value."""

TASK_STATE_KEY = "airflow_provider_mail.sent"

NO_TASK_STATE = (
    "this Airflow has no task state store (3.3 has), so a try cannot know what earlier ones have sent. "
    "on_ambiguous='resend' lets every try send everything"
)

POSITION_KEY = "is_new"
"""The XCom in which the first task instance of a mapped task says how often the run was cleared when it began, and
whether no try of it has begun before."""

POSITION_LOOKS, POSITION_SECONDS = 10, 3.0
"""How often and at which interval in seconds the others look for it: Airflow deletes it when the first one starts."""

RESULT = {"requests", "recipients", "unknown_requests", "unknown_recipients"}


class BaseSendOperator(BaseInterruptibleOperator):
    """Send transactional mail at most once.

    The service does not show whether a message was sent, so a request whose outcome is unknown is not sent again. Each
    request is recorded before and after it is sent (in the task state store of Airflow 3.3), under an id that is the
    same in every try. A retried, killed or cleared task continues after the last request that is known to have been
    accepted. Before Airflow 3.3 no state outlives a try: a try that ends early fails the task, so that nobody is mailed
    twice.
    """

    template_fields_renderers = {"content": "html"}  # noqa: RUF012 - Airflow's own attribute
    argument: ClassVar[str] = "messages"
    things: ClassVar[str] = "messages"
    """The argument with the content of the mailing, and the noun for its items, for errors."""

    send_date: Any
    on_ambiguous: str
    on_unfilled_tag: OnUnfilledTag
    service_tags: Any
    max_in_flight = 1
    once_per: str | None
    at_most: tuple[int, timedelta] | None
    on_duplicate_recipient: OnDuplicateRecipient = "fail"
    unique_msg_id: str | None = None
    """The user's id; without one, the ids of the requests are derived from the task instance."""

    @abstractmethod
    def chunks(self, context: Context, key: str) -> AbstractContextManager[Iterable[Chunk]]:
        """Build and check all requests.

        :param key: the text from which the ids of the requests are derived.
        """

    def execute(self, context: Context) -> dict[str, Any]:
        """Send the requests that no earlier try has sent."""
        with self.mail_errors():
            mailing, sandbox = self._send(context)
        if mailing.is_empty:
            self.on_nothing(f"{self.argument}: there are no {self.things} to send")
        self.log.info("%s%s.", mailing.state, "; sandbox: nothing was sent" if sandbox else "")
        return {**mailing.state.model_dump(include=RESULT), **mailing.counts, "sandbox": sandbox}

    def _remembered(self, context: Context) -> RememberedMailing | None:
        """Return the mailing whose record is the memory, if one is configured.

        :raises MailConfigError: none is, and an argument needs it; or it cannot be trusted.
        """
        from airflow_provider_mail._config import setting

        if not setting("memory_conn_id") and self.once_per is None and self.at_most is None:
            return None
        # Imported here: all of the warehouse takes longer than to send a message.
        from airflow_provider_mail._audience.memory import Cap, Memory
        from airflow_provider_mail._audience.remembered import RememberedMailing
        from airflow_provider_mail._task.state import TaskState

        if (memory := Memory.needed_by(self)) is None:
            return None
        return RememberedMailing(
            self.hook,
            TaskState(None, TASK_STATE_KEY),
            self.on_ambiguous,
            max_in_flight=self.max_in_flight,
            argument=self.argument,
            things=self.things,
            own_ids=not self.unique_msg_id,
            memory=memory,
            task=mailing_name(context),
            once_per=self.once_per,
            by_content=context["ti"].map_index not in (None, -1) or self.on_duplicate_recipient == "allow",
            cap=Cap.of(self.at_most),
        )

    def _send(self, context: Context) -> tuple[Mailing, bool]:
        from airflow_provider_mail._task.at_most_once import Mailing
        from airflow_provider_mail._task.state import TaskState, task_state
        from airflow_provider_mail.api.errors import MailError

        sandbox = self.sandbox_mode or self.hook.config.sandbox
        # A request that is only validated is not recorded: a later try without sandbox mode must send it.
        state = TaskState(None, TASK_STATE_KEY) if sandbox else task_state(context, TASK_STATE_KEY)
        remembered = None if sandbox else self._remembered(context)
        stateless = not (sandbox or remembered or state.durable or self.on_ambiguous == "resend")
        mailing = remembered or Mailing(
            self.hook,
            state,
            self.on_ambiguous,
            max_in_flight=self.max_in_flight,
            argument=self.argument,
            things=self.things,
            own_ids=not self.unique_msg_id,
            state_lost=not (sandbox or state.durable) and context["ti"].try_number > 1,
            # Without a record, an earlier try ended before its first line.
            clears=(context["dag_run"].clear_number or 0) if context["ti"].try_number <= 1 else 0,
        )
        by_position = not (sandbox or remembered) and context["ti"].map_index not in (None, -1)
        if by_position:
            self._begin_position(context, mailing)
        with self.chunks(context, task_instance_name(context, 250)) as chunks:
            if stateless:
                self._check_first_try(context["ti"].try_number)
            if by_position:
                self._check_position(context, mailing, chunks)
            if mailing.state.done:
                self.log.info("In earlier tries, %s. Continuing with the next request.", mailing.state)
            try:
                self.new_interrupt().run(mailing.send, chunks)
                return mailing, sandbox
            except Exception as error:
                self.log.error("Ended early: %s.", mailing.state)
                if stateless and isinstance(error, MailError) and error.temporary:
                    raise AirflowFailException(f"{error}. {mailing.state}; {NO_TASK_STATE}") from error
                raise

    def _begin_position(self, context: Context, mailing: Mailing) -> None:
        """Store that a try of this mapped task instance has begun; the first one lets the others know."""
        ti, cleared = context["ti"], context["dag_run"].clear_number or 0
        mailing.write()
        if ti.map_index == 0:
            ti.xcom_push(key=POSITION_KEY, value=[cleared, mailing.state.clears == cleared])

    def _check_position(self, context: Context, mailing: Mailing, chunks: Iterable[Chunk]) -> None:
        """Fail if the mapped list may have moved: then another task instance may have sent this.

        What a mapped task instance has sent is stored under its index. So its first request must be that of its first
        try; as long as that is not known, the run must not have been cleared since. One that is new in a cleared run
        may have been at another place before, unless the first one is new as well: then none ran before.

        :raises AirflowFailException: naming what to do.
        :raises AirflowException: the first task instance has not begun yet.
        """
        ti, state, cleared = context["ti"], mailing.state, context["dag_run"].clear_number or 0
        content = next((chunk.digest for chunk in chunks), "")
        if self.on_ambiguous == "resend":
            may_have_moved = False
        elif state.content:
            may_have_moved = content != state.content
        elif state.clears != cleared:
            may_have_moved = True
        else:
            may_have_moved = bool(cleared and ti.map_index) and not self._first_is_new(context)
        if may_have_moved:
            raise AirflowFailException(
                f"map_index {ti.map_index}: the mapped list may have moved. What was sent is stored by position, so "
                "another task may have sent this: nothing was sent. Restore the list; or, if nobody here was mailed, "
                "clear this task with on_ambiguous='resend'. With [mail] memory_conn_id, positions do not matter"
            )
        state.content = content

    def _first_is_new(self, context: Context) -> bool:
        for _ in range(POSITION_LOOKS):
            clears, is_new = context["ti"].xcom_pull(task_ids=self.task_id, key=POSITION_KEY, map_indexes=0) or (-1, 0)
            if clears == context["dag_run"].clear_number:
                return bool(is_new)
            time.sleep(POSITION_SECONDS)
        raise AirflowException(
            f"map_index {context['ti'].map_index}: this run was cleared, and map_index 0 has not begun yet, which "
            "shows whether the mapped list may have moved: nothing was sent. The next try looks again"
        )

    def tags_of_the_service(self) -> frozenset[str]:
        """Return the tags that the service fills, according to the connection and the argument."""
        from airflow_provider_mail.api._core.fields import tag_names

        return self.hook.service_tags | tag_names(unwrap(self.service_tags))

    def report_unfilled(self, problem: str, advice: str) -> None:
        """Fail or warn because tags have no value.

        :param problem: which tags; empty if there are none.
        :param advice: how to give them a value.
        :raises MailValidationError: when ``on_unfilled_tag`` is ``fail``.
        """
        from airflow_provider_mail.api.errors import MailValidationError

        if problem and self.on_unfilled_tag == "fail":
            raise MailValidationError(
                f"{problem}. Nothing was sent. {advice}, name tags that the service fills in service_tags, or set "
                "on_unfilled_tag='warn'"
            )
        if problem:
            self.log.warning("%s: mailed as they are unless the service fills them.", problem)

    def one_message(self, to: Sequence[Mapping[str, Any]], **fields: Any) -> SendMail | SendBatch:
        """Build the request of one message; several recipients share it."""
        from airflow_provider_mail.api.transactional import SendBatch, SendMail

        if len(to) == 1:
            return self.build_request(SendMail, to=to[0], **fields)
        # Only the batch form accepts several recipients; within one version they share the message.
        return self.build_request(SendBatch, message_versions=[{"to": to}], **fields)

    def check_tags(self, **texts: str | None) -> None:
        """Fail or warn because a single message has tags, for which it has no values.

        :param texts: by field.
        """
        from airflow_provider_mail.api._core.fields import tags_of

        tags = [(name, tag) for name, text in texts.items() for tag in tags_of(text)]
        known = self.tags_of_the_service() if tags else ()
        problems = [
            f"{name}: {{{{{tag}}}}} has no value: a single message has none for tags"
            for name, tag in tags
            if tag not in known
        ]
        self.report_unfilled("; ".join(problems), "Use MailSendBatchOperator")

    def _check_first_try(self, try_number: int) -> None:
        if try_number > 1:
            raise AirflowFailException(f"this is try {try_number}, and nothing was sent in it: {NO_TASK_STATE}")
        self.log.warning("If this try ends early it is not repeated: %s.", NO_TASK_STATE)


class MailSendOperator(BaseSendOperator):
    """Send one message, at most once.

    Returns ``requests`` and ``recipients`` that were accepted over all tries, ``unknown_requests`` and
    ``unknown_recipients`` that were skipped, and ``sandbox``; never addresses.

    .. seealso:: the guide :ref:`howto/operator:MailSendOperator`
        (in the package: ``airflow_provider_mail/docs/transactional.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sender_mail: a verified sender of the account. (templated)
    :param sender_name: the display name of the sender. Default: none. (templated)
    :param to: the recipient: an address, ``Name <address>``, or ``{"email": ..., "name": ...}``. Several, up to 20, as
        a list or separated by commas, share one message and may see each other, as with SMTP; to send a message to
        each, use ``MailSendBatchOperator``. A repeated address is mailed once. Airflow neither stores nor shows them.
        (templated)
    :param subject: the subject. (templated)
    :param content: HTML, or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's folder or in
        ``template_searchpath``, which is rendered as well. (templated)
    :param reply_to: the address for replies. Default: none. (templated)
    :param send_date: the send time: a datetime with a zone or ISO 8601 text with one. Default: now. (templated)
    :param category: a label for reports: letters and digits, 100 bytes at most. Default: none. (templated)
    :param campaign: the task name label: letters and digits, 100 bytes at most. Default: none. (templated)
    :param track_open: count opens. Default: false.
    :param track_click: count clicks. Default: false.
    :param attachment: one file: a path or URL as Airflow's ``ObjectStoragePath`` takes it, which is read when the task
        runs; or ``{"file_name": ..., "file_data": <Base64>}``. Default: none. (templated)
    :param unique_msg_id: your own id of the message, 50 bytes at most. Default: made of dag id, task id, run id and map
        index. (templated)
    :param allow_blank: send it although subject or content is blank, or a template rendered an argument that recipients
        see to nothing or to the text ``None``. Default: false, the task fails before anything is sent.
    :param on_unfilled_tag: what to do when subject or content has a tag, since a single message has no values for tags:
        ``fail`` before it is sent, or ``warn`` in the log. Default: ``fail``.
    :param service_tags: the names of tags that the service fills, in addition to those of the connection; they need no
        value. Default: none. (templated)
    :param once_per: a key such as ``welcome-1``: a person gets one mail under it, whatever DAG or run sends it; who
        had one is counted as ``already``. At most 200 bytes. It needs ``[mail] memory_conn_id``, see
        docs/how-to/who-was-mailed.md. Default: the task and its run. (templated)
    :param at_most: ``(3, timedelta(days=7))``: a person gets at most 3 mails in any 7 days, of all that the memory has;
        who would get more is not mailed, and counted as ``capped``. Default: no limit.
    :param sandbox_mode: let the service check the request and send nothing. Default: false.
    :param on_ambiguous: what to do with a request whose outcome is unknown: ``fail`` the task, ``resend`` the request,
        which may mail people twice, or ``skip`` it, which may leave people out. Default: ``fail``. (templated)
    """

    to = RedactedField()
    required_texts = ("subject", "content")
    elsewhere: ClassVar = {
        name: f"use MailSendBatchOperator, whose messages have {name}; a batch may be one message"
        for name in ("template_name", "cc", "bcc")
    }

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sender_mail: Templated[str],
        sender_name: Templated[str] | None = None,
        to: Templated[str | Mapping[str, Templated[str]] | Sequence[Templated[str] | Mapping[str, Templated[str]]]],
        subject: Templated[str],
        content: Templated[str],
        reply_to: Templated[str] | None = None,
        send_date: Templated[datetime] | None = None,
        category: Templated[str] | None = None,
        campaign: Templated[str] | None = None,
        track_open: bool = False,
        track_click: bool = False,
        attachment: Templated[Mapping[str, Templated[str]] | ObjectStoragePath] | None = None,
        unique_msg_id: Templated[str] | None = None,
        allow_blank: bool = False,
        on_unfilled_tag: OnUnfilledTag = "fail",
        service_tags: Templated[Collection[Templated[str]]] | None = None,
        once_per: Templated[str] | None = None,
        at_most: tuple[int, timedelta] | None = None,
        sandbox_mode: bool = False,
        on_ambiguous: Templated[OnAmbiguous] = "fail",
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def chunks(self, context: Context, key: str) -> AbstractContextManager[Iterable[Chunk]]:
        from airflow_provider_mail.api.transactional import Chunk, recipients_of

        to = recipients_of("to", unwrap(self.to))
        request = self.one_message(to, send_date=self.send_date or None)
        self.check_tags(subject=request.subject, content=request.content)
        return nullcontext([Chunk.of(0, request, len(to), "" if self.unique_msg_id else key)])


class BaseSendBatchOperator(SendGuardMixin, BaseSendOperator):
    """Send many personalized messages, at most once each; a subclass defines the source of the messages."""

    values_from: ClassVar[str] = "correct the tag or the params of the messages, give a default in mail_params"
    """Advice on how to give values to tags, for errors."""

    mail_params: Any
    versions_per_request: int
    max_in_flight: int
    _duplicates = 0

    @abstractmethod
    def all_messages(self) -> AbstractContextManager[Iterable[Mapping[str, Any]]]:
        """Open the messages, in the form of ``MailSendBatchOperator``; they are iterated once."""

    @contextmanager
    def chunks(self, context: Context, key: str) -> Iterator[Iterable[Chunk]]:
        from airflow_provider_mail._task.at_most_once import ChunkSpool
        from airflow_provider_mail._task.messages import MessageCheck, Recipients
        from airflow_provider_mail.api._core.pacing import infrequent_gc
        from airflow_provider_mail.api.errors import MailValidationError
        from airflow_provider_mail.api.templates import find_template
        from airflow_provider_mail.api.transactional import SendBatch, cut

        if blank := self.blank_arguments():
            raise MailValidationError(blank)
        common = self.request_fields(SendBatch)
        common |= {"send_date": self.fitted_send_date(context), "params": unwrap(self.mail_params)}
        check = MessageCheck(
            common,
            things=self.things,
            allow_blank=self.allow_blank,
            service_tags=self.tags_of_the_service,
            find_template=lambda name: find_template(self.hook.get_conn(), name),
        )

        def checked(block: Numbered) -> Numbered:
            if not recipients.are_new(block):
                kept = [(number, recipients.without_duplicates(number, one)) for number, one in block]
                block = [(number, one) for number, one in kept if one is not None]
            return [(number, check.checked(number, one)) for number, one in block]

        with closing(ChunkSpool()) as spool:
            with (
                infrequent_gc(),
                closing(Recipients(self.on_duplicate_recipient)) as recipients,
                self.all_messages() as messages,
            ):
                for chunk in cut(common, messages, key=key, versions=self.versions_per_request, prepare=checked):
                    spool.add(chunk)
                recipients.check()
                self.report_unfilled(check.unfilled(), f"Values are given for {check.given()}: {self.values_from}")
            self._duplicates = recipients.count
            if recipients.count:
                times = "only the first time" if self.on_duplicate_recipient == "skip" else "each time"
                self.log.warning("%s recipients come more than once and are mailed %s.", recipients.count, times)
            yield spool

    def execute(self, context: Context) -> dict[str, Any]:
        return {**super().execute(context), "duplicate_recipients": self._duplicates}


class MailSendBatchOperator(BaseSendBatchOperator):
    """Send many personalized messages, at most once each, in requests of up to 100 messages.

    Returns ``requests`` and ``recipients`` that were accepted over all tries, ``unknown_requests`` and
    ``unknown_recipients`` that were skipped, ``duplicate_recipients`` and ``sandbox``; never addresses.

    .. seealso:: the guide :ref:`howto/operator:MailSendBatchOperator`
        (in the package: ``airflow_provider_mail/docs/transactional.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param sender_mail: a verified sender of the account. (templated)
    :param sender_name: the display name of the sender. Default: none. (templated)
    :param messages: dictionaries: ``to`` (an address, ``{"email": ..., "name": ...}``, or a list of up to 20 of these),
        and optionally ``cc``, ``bcc``, ``subject``, ``content``, ``template_name`` and ``params`` (values for tags),
        which take precedence over those of the operator. Or a function without arguments that returns or yields them,
        in constant memory. Every try must return the same messages in the same order. Airflow neither stores nor shows
        them. (templated)
    :param subject: the subject of messages without one of their own. It may contain tags; since Airflow renders the
        field, write them as ``{% raw %}{{tag}}{% endraw %}``. Default: none. (templated)
    :param content: HTML, with tags in the same form; or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's
        folder or in ``template_searchpath``, which is rendered as well. Default: none. (templated)
    :param template_name: a stored template for messages without one of their own; it takes precedence over ``content``.
        Default: none. (templated)
    :param mail_params: values for tags in all messages (the specification's ``params``; Airflow has its own
        ``params``); those of a message take precedence, unless they are ``None`` or blank. Default: none. (templated)
    :param reply_to: the address for replies. Default: none. (templated)
    :param send_date: the send time: a datetime with a zone or ISO 8601 text with one. Default: now. (templated)
    :param send_window: the hours and days at which it may go out, see
        :class:`~airflow_provider_mail.send_window.SendWindow`: a send time outside of it is moved to its next opening,
        and no try sends after that opening has closed. Default: at any time.
    :param max_run_age: nothing is sent when the run was due longer ago, as in catch-up or a backfill; seconds or a
        timedelta. Default: a run of any age sends.
    :param on_old_run: what the task does then: ``fail``, or ``skip``. Default: ``fail``.
    :param category: a label for reports: letters and digits, 100 bytes at most. Default: none. (templated)
    :param campaign: the task name label: letters and digits, 100 bytes at most. Default: none. (templated)
    :param track_open: count opens. Default: false.
    :param track_click: count clicks. Default: false.
    :param attachment: one file: a path or URL as Airflow's ``ObjectStoragePath`` takes it, which is read when the task
        runs; or ``{"file_name": ..., "file_data": <Base64>}``. Default: none. (templated)
    :param versions_per_request: messages in one request, 100 at most. Default: 100.
    :param max_in_flight: the maximum number of concurrent requests; the connection's own limit also applies. After a
        crash, as many are in doubt, each of up to 100 people. Default: 1.
    :param on_empty: what to do when there is no message: ``error`` fails the task, ``skip`` skips it, ``continue``
        returns zeros. Default: ``error``.
    :param on_duplicate_recipient: what to do when a recipient is in ``to`` of two messages, or twice in one: ``fail``
        before anything is sent, ``skip`` all but the first, or ``allow`` it. The result counts them as
        ``duplicate_recipients``. Default: ``fail``.
    :param allow_blank: send it although subject or content is blank, or a template rendered an argument that recipients
        see to nothing or to the text ``None``. Default: false, the task fails before anything is sent.
    :param on_unfilled_tag: what to do when a tag in subject, content or stored template has no value in a message, or a
        blank one: ``fail`` before anything is sent, or ``warn`` in the log. Default: ``fail``.
    :param service_tags: the names of tags that the service fills, in addition to those of the connection; they need no
        value. Default: none. (templated)
    :param once_per: a key such as ``welcome-1``: a person gets one mail under it, whatever DAG or run sends it; who
        had one is counted as ``already``. At most 200 bytes. It needs ``[mail] memory_conn_id``, see
        docs/how-to/who-was-mailed.md. Default: the task and its run. (templated)
    :param at_most: ``(3, timedelta(days=7))``: a person gets at most 3 mails in any 7 days, of all that the memory has;
        who would get more is not mailed, and counted as ``capped``. Default: no limit.
    :param sandbox_mode: let the service check the requests and send nothing. Default: false.
    :param on_ambiguous: what to do with a request whose outcome is unknown: ``fail`` the task, ``resend`` the request,
        which may mail people twice, or ``skip`` it, which may leave people out. Default: ``fail``. (templated)
    """

    messages = RedactedField()

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        sender_mail: Templated[str],
        sender_name: Templated[str] | None = None,
        messages: Templated[Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]]],
        subject: Templated[str] | None = None,
        content: Templated[str] | None = None,
        template_name: Templated[str] | None = None,
        mail_params: Templated[Mapping[str, Any]] | None = None,
        reply_to: Templated[str] | None = None,
        send_date: Templated[datetime] | None = None,
        send_window: SendWindow | None = None,
        max_run_age: float | timedelta | None = None,
        on_old_run: Literal["fail", "skip"] = "fail",
        category: Templated[str] | None = None,
        campaign: Templated[str] | None = None,
        track_open: bool = False,
        track_click: bool = False,
        attachment: Templated[Mapping[str, Templated[str]] | ObjectStoragePath] | None = None,
        versions_per_request: int = 100,
        max_in_flight: int = 1,
        on_empty: OnEmpty = "error",
        on_duplicate_recipient: OnDuplicateRecipient = "fail",
        allow_blank: bool = False,
        on_unfilled_tag: OnUnfilledTag = "fail",
        service_tags: Templated[Collection[Templated[str]]] | None = None,
        once_per: Templated[str] | None = None,
        at_most: tuple[int, timedelta] | None = None,
        sandbox_mode: bool = False,
        on_ambiguous: Templated[OnAmbiguous] = "fail",
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def all_messages(self) -> AbstractContextManager[Iterable[Mapping[str, Any]]]:
        return nullcontext(given_rows("messages", unwrap(self.messages)))
