"""Transactional mail: one message, or many personalized ones, at most once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, check_flags, task_instance_name
from airflow_provider_mail._task.content_file import from_file
from airflow_provider_mail._task.redacted_field import HiddenField, unwrap
from airflow_provider_mail.version_compat import AirflowFailException, AirflowSkipException

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

    from airflow_provider_mail._task.at_most_once import Sent
    from airflow_provider_mail.api.flows.batches import Chunk

TASK_STATE_KEY = "airflow_provider_mail.sent"

NO_MEMORY = (
    "this Airflow has no task state store (3.3 has), so a try cannot know what earlier ones have sent. "
    "on_ambiguous='resend' lets every try send everything"
)

RESULT = {"requests", "recipients", "unknown_requests", "unknown_recipients"}


class BaseSendOperator(MailTaskMixin, BaseOperator):
    """What both kinds of transactional sends share.

    The service cannot be asked whether a message went out, so nothing is sent again whose outcome is unknown. Each
    request is written down before and after it is sent (in the task state store of Airflow 3.3), under an id that is
    the same in every try. A retried, killed or cleared task goes on behind the last request that is known to have been
    accepted. Below Airflow 3.3 nothing outlives a try: what ends early fails rather than mail somebody twice.

    Returns ``requests`` and ``recipients`` that were accepted over all tries, ``unknown_requests`` and
    ``unknown_recipients`` that were skipped, ``sandbox``, and of a batch ``duplicate_recipients``; never addresses.

    :param mail_conn_id: the connection.
    :param sender_mail: a sender of the account.
    :param sender_name: its display name.
    :param subject: subject; may hold tags such as ``{{tag}}`` (in a template field written
        ``{% raw %}{{tag}}{% endraw %}``).
    :param content: HTML, with tags likewise; or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's folder
        or in ``template_searchpath``, which is rendered as well.
    :param reply_to: where answers go.
    :param send_date: when to send: a datetime with a zone or ISO 8601 text with one. Default: now.
    :param category: label for reports: letters and digits, 100 bytes.
    :param campaign: task name label: letters and digits, 100 bytes.
    :param track_open: count opens.
    :param track_click: count clicks.
    :param attachment: one file: ``{"file_name": ..., "file_data": <Base64>}``.
    :param sandbox_mode: let the service check and send nothing.
    :param on_ambiguous: what to do with a request whose outcome is unknown: ``fail`` (default), ``resend`` it, which
        may mail people twice, or ``skip`` it, which may leave people out.
    """

    template_fields: Sequence[str] = (
        "mail_conn_id",
        "sender_mail",
        "sender_name",
        "subject",
        "content",
        "reply_to",
        "send_date",
        "category",
        "campaign",
        "attachment",
        "on_ambiguous",
    )
    template_fields_renderers = {"content": "html"}  # noqa: RUF012 - Airflow's own attribute
    ui_color = "#e6f1f2"
    argument: ClassVar[str] = "messages"
    things: ClassVar[str] = "messages"
    """What says what is sent, and what that consists of: for errors."""
    own_ids = True
    """Whether the ids of the requests are made here, of the task instance's, and not given."""

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        sender_mail: str | XComArg,
        sender_name: str | XComArg | None = None,
        subject: str | XComArg | None = None,
        content: str | XComArg | None = None,
        reply_to: str | XComArg | None = None,
        send_date: datetime | str | XComArg | None = None,
        category: str | XComArg | None = None,
        campaign: str | XComArg | None = None,
        track_open: bool = False,
        track_click: bool = False,
        attachment: Mapping[str, str] | XComArg | None = None,
        sandbox_mode: bool = False,
        on_ambiguous: str = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(track_open=track_open, track_click=track_click, sandbox_mode=sandbox_mode)
        self.mail_conn_id = mail_conn_id
        self.sender_mail = sender_mail
        self.sender_name = sender_name
        self.subject = subject
        self.content = from_file(content)
        self.reply_to = reply_to
        self.send_date = send_date
        self.category = category
        self.campaign = campaign
        self.track_open = track_open
        self.track_click = track_click
        self.attachment = attachment
        self.sandbox_mode = sandbox_mode
        self.on_ambiguous = on_ambiguous

    @abstractmethod
    def chunks(self, context: Context, key: str) -> AbstractContextManager[Iterable[Chunk]]:
        """The requests to send, all checked, with ids made of the key."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Send what no earlier try has sent."""
        from airflow_provider_mail._task.at_most_once import ON_AMBIGUOUS

        if self.on_ambiguous not in ON_AMBIGUOUS:
            raise AirflowFailException(f"on_ambiguous: {self.on_ambiguous!r} is none of {', '.join(ON_AMBIGUOUS)}")
        with self.mail_errors():
            sent, sandbox = self._send(context)
        if not sent.done:
            self.nothing()
        self.log.info("%s%s.", sent, "; sandbox: nothing was sent" if sandbox else "")
        return {**sent.model_dump(include=RESULT), "sandbox": sandbox}

    def _send(self, context: Context) -> tuple[Sent, bool]:
        from airflow_provider_mail._task.at_most_once import Mailing
        from airflow_provider_mail._task.state import NullTaskState, task_state
        from airflow_provider_mail.api.errors import MailError

        with self.chunks(context, task_instance_name(context, 250)) as chunks:
            sandbox = self.sandbox_mode or self.hook.config.sandbox
            # What is only checked is not written down: a later try without sandbox must send it.
            ledger = NullTaskState() if sandbox else task_state(context, TASK_STATE_KEY)
            forgetful = not (sandbox or ledger.durable or self.on_ambiguous == "resend")
            if forgetful:
                self._without_memory(context["ti"].try_number)
            mailing = Mailing(
                self.hook,
                ledger,
                self.on_ambiguous,
                argument=self.argument,
                things=self.things,
                own_ids=self.own_ids,
                forgotten=not (sandbox or ledger.durable) and context["ti"].try_number > 1,
            )
            if mailing.sent.done:
                self.log.info("In earlier tries %s: going on behind them.", mailing.sent)
            try:
                return mailing.send(chunks), sandbox
            except Exception as error:
                self.log.error("Ended early: %s.", mailing.sent)
                if forgetful and isinstance(error, MailError) and error.temporary:
                    raise AirflowFailException(f"{error}. {mailing.sent}; {NO_MEMORY}") from error
                raise

    def nothing(self) -> None:
        """Say what it means that there was nothing to send."""

    def _without_memory(self, try_number: int) -> None:
        if try_number > 1:
            raise AirflowFailException(f"this is try {try_number}, and nothing was sent in it: {NO_MEMORY}")
        self.log.warning("If this try ends early it is not repeated: %s.", NO_MEMORY)

    def _common(self) -> dict[str, Any]:
        return {
            "sender_mail": self.sender_mail,
            "sender_name": self.sender_name,
            "subject": self.subject,
            "content": self.content,
            "reply_to": self.reply_to,
            "send_date": self.send_date or None,
            "category": self.category,
            "campaign": self.campaign,
            "track_open": 1 if self.track_open else None,
            "track_click": 1 if self.track_click else None,
            "attachment": self.attachment,
            "sandbox_mode": self.sandbox_mode or None,
        }


class MailSendOperator(BaseSendOperator):
    """Sends one message to one person, at most once.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/transactional.md``.

    :param to: the address, or ``{"email": ..., "name": ...}``.
    :param unique_msg_id: your own id of the message, 50 bytes. Default: made of dag id, task id, run id and map index.
    """

    template_fields: Sequence[str] = (*BaseSendOperator.template_fields, "to", "unique_msg_id")

    to = HiddenField()

    def __init__(
        self, *, to: str | Mapping[str, str] | XComArg, unique_msg_id: str | XComArg | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.unique_msg_id = unique_msg_id

    @property
    def own_ids(self) -> bool:  # type: ignore[override]
        """Whether no other message can have this one's id."""
        return not self.unique_msg_id

    def chunks(self, context: Context, key: str) -> AbstractContextManager[Iterable[Chunk]]:
        """The one request."""
        from airflow_provider_mail.api.flows.batches import Chunk, unique_msg_id
        from airflow_provider_mail.api.transactional import SendMail

        to = unwrap(self, self.to, context)
        fields: dict[str, Any] = {
            **self._common(),
            "to": {"email": to} if isinstance(to, str) else to,
            "unique_msg_id": self.unique_msg_id or unique_msg_id(key, 0),
        }
        return nullcontext([Chunk.of(0, SendMail(**fields), recipients=1)])


class BaseSendBatchOperator(BaseSendOperator):
    """What all batches of personalized messages share; a subclass says where the messages come from.

    :param template_name: a stored template; wins over ``content``.
    :param mail_params: values for tags in all messages (the document's ``params``; Airflow has ``params`` of its own);
        a message's own win.
    :param versions_per_request: messages in one request, 100 at most.
    :param on_empty: what to do when there is no message: ``error`` (default), ``skip`` or ``continue``.
    :param on_duplicate_recipient: what to do when somebody is in ``to`` of two messages, or twice in one: ``fail``
        (default) before anything is sent, ``skip`` them but for the first time, or ``allow`` it. The result counts
        them as ``duplicate_recipients``.
    """

    template_fields: Sequence[str] = (*BaseSendOperator.template_fields, "template_name", "mail_params")

    def __init__(
        self,
        *,
        template_name: str | XComArg | None = None,
        mail_params: Mapping[str, Any] | XComArg | None = None,
        versions_per_request: int = 100,
        on_empty: Literal["error", "skip", "continue"] = "error",
        on_duplicate_recipient: Literal["fail", "skip", "allow"] = "fail",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if on_duplicate_recipient not in ("fail", "skip", "allow"):
            raise ValueError(f"on_duplicate_recipient: {on_duplicate_recipient!r} is none of fail, skip, allow")
        if type(versions_per_request) is not int or not 1 <= versions_per_request <= 100:
            raise ValueError(f"versions_per_request: {versions_per_request!r} is not from 1 to 100")
        if on_empty not in ("error", "skip", "continue"):
            raise ValueError(f"on_empty: {on_empty!r} is none of error, skip, continue")
        self.template_name = template_name
        self.mail_params = mail_params
        self.versions_per_request = versions_per_request
        self.on_empty = on_empty
        self.on_duplicate_recipient = on_duplicate_recipient
        self._duplicates = 0

    @abstractmethod
    def all_messages(self, context: Context) -> AbstractContextManager[Iterable[Mapping[str, Any]]]:
        """The messages, as ``MailSendBatchOperator`` takes them; they are gone through once."""

    @contextmanager
    def chunks(self, context: Context, key: str) -> Iterator[Iterable[Chunk]]:
        """The requests; all of them are checked before the first is sent."""
        from airflow_provider_mail._task.chunk_spool import ChunkSpool
        from airflow_provider_mail._task.recipients import Recipients
        from airflow_provider_mail.api.flows.batches import cut

        common = {**self._common(), "template_name": self.template_name, "params": self.mail_params}
        with closing(ChunkSpool()) as spool:
            with (
                closing(Recipients(self.on_duplicate_recipient)) as recipients,
                self.all_messages(context) as messages,
            ):
                for chunk in cut(common, messages, key=key, versions=self.versions_per_request, keep=recipients.keep):
                    spool.add(chunk)
                recipients.check()
            self._duplicates = recipients.count
            if recipients.count:
                done = (
                    "left out but for the first time" if self.on_duplicate_recipient == "skip" else "mailed each time"
                )
                self.log.warning("%s recipients come more than once and are %s.", recipients.count, done)
            yield spool

    def execute(self, context: Context) -> dict[str, Any]:
        """Send what no earlier try has sent."""
        return {**super().execute(context), "duplicate_recipients": self._duplicates}

    def nothing(self) -> None:
        """Fail, skip the task, or go on."""
        if self.on_empty == "error":
            raise AirflowFailException(f"{self.argument}: there is none (on_empty='skip' or 'continue' if that may be)")
        if self.on_empty == "skip":
            raise AirflowSkipException(f"{self.argument}: there is none")


class MailSendBatchOperator(BaseSendBatchOperator):
    """Sends many personalized messages, at most once each; cut into requests of up to 100 messages.

    .. seealso::
        For more information on how to use this operator, see ``airflow_provider_mail/docs/transactional.md``.

    :param messages: dictionaries: ``to`` (an address, ``{"email": ..., "name": ...}``, or a list of up to 20 of
        these), and if wanted ``cc``, ``bcc``, ``subject``, ``content``, ``template_name`` and ``params`` (values for
        tags), which win over those of the whole mailing. Or a function without arguments that returns or yields them,
        in flat memory. Every try must give the same messages in the same order.
    """

    template_fields: Sequence[str] = (*BaseSendBatchOperator.template_fields, "messages")

    messages = HiddenField()

    def __init__(
        self,
        *,
        messages: Iterable[Mapping[str, Any]] | Callable[[], Iterable[Mapping[str, Any]]] | XComArg,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.messages = messages

    def all_messages(self, context: Context) -> AbstractContextManager[Iterable[Mapping[str, Any]]]:
        """What was given, or what the function returns."""
        messages = unwrap(self, self.messages, context)
        if callable(messages):
            messages = messages()
        if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
            raise AirflowFailException(f"messages: a list of dictionaries is needed, not {type(messages).__name__}")
        return nullcontext(messages)
