"""Campaigns: create one, exactly once; cancel or delete one."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, BaseOperator, conf

from airflow_provider_mail.hooks.task import MailTask, check_flags, check_number, task_instance_name
from airflow_provider_mail.operators.hidden import revealed
from airflow_provider_mail.operators.killing import CancelsOnKill
from airflow_provider_mail.operators.named import BaseDeleteOperator, BaseRemoveOperator
from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger, event_of, mail_stats_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_provider_mail.api.base import Flow
    from airflow_provider_mail.api.campaigns import CreateCampaign, DeleteCampaign
    from airflow_provider_mail.api.creation import Creation, OnIncomplete

MAX_NAME_BYTES = 200

ON_INCOMPLETE = ("cancel", "keep", "fail")


class MailCreateCampaignOperator(CancelsOnKill, MailTask, BaseOperator):
    """Creates a campaign to contact lists, exactly once however often the task is tried.

    ``mailName`` is unique within a team and known before the first request. Every try looks for it first: a campaign
    of that name with equal content is adopted, whatever its state; a different one fails the task, naming the
    differences; only when there is none is one created. So clearing the task does not send again: sending again takes
    a new name.

    Pushes ``mail_name``, ``id`` and ``guid`` to XCom before it waits. Returns these, ``adopted``, ``incomplete``,
    ``sandbox`` and, after having waited, ``mail_stats``.

    .. seealso::
        For more information on how to use this operator, see ``docs/campaigns.md``.

    :param mail_conn_id: the connection.
    :param mail_name: the campaign's name, 200 bytes. Default: made of dag id, task id, run id and map index.
    :param sender_mail: a verified sender of the account.
    :param sender_name: its display name. Default: ``sender_mail``.
    :param subject: may hold tags such as ``{{tag}}`` (in a template field written ``{% raw %}{{tag}}{% endraw %}``).
    :param content: HTML, with tags likewise; ``{% include 'news.html' %}`` takes it from a file in the DAG's folder.
    :param send_date: when to send: a datetime with a zone or ISO 8601 text with one. Default: now.
    :param only_save: save a draft and send nothing.
    :param send_list_names: target lists; needed unless ``only_save``.
    :param repel_list_names: exclusion lists.
    :param reply_to: where answers go. Default: ``sender_mail``.
    :param attachment: one file: ``{"file_name": ..., "file_data": <Base64>}``.
    :param language_code: language of system modules such as the unsubscribe link.
    :param market_name: activity the campaign belongs to; created when missing.
    :param subscript_name: subscription type; must exist.
    :param project_code: created when missing.
    :param editor_type: ``CLASSIC`` or ``DRAG``.
    :param sandbox_mode: let the service check and create nothing.
    :param ignore_differences: fields that need not agree when an existing campaign is adopted, for instance
        ``["content"]`` where the service rewrites it.
    :param on_incomplete: what to do when the service answers with code 500 and keeps the campaign (adding the
        attachment or the service's check failed): ``fail`` (default) says what is left behind, ``cancel`` cancels it
        and fails, ``keep`` goes on with it and succeeds if it goes out (needs ``wait_for_completion`` or
        ``only_save``).
    :param wait_for_completion: wait until the campaign has gone out (``mailStatus`` 2).
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: seconds from one look to the next.
    :param timeout: seconds to wait for completion after creation or, when it is later, after ``send_date``.
    :param cancel_on_kill: cancel the campaign, as long as its send time is ahead, when the waiting task is marked
        failed or successful; not when it is cleared, tried again, or goes on elsewhere. While the task is deferred this
        needs Airflow 3.3.
    """

    template_fields: Sequence[str] = (
        "mail_conn_id",
        "mail_name",
        "sender_mail",
        "sender_name",
        "subject",
        "content",
        "send_date",
        "send_list_names",
        "repel_list_names",
        "reply_to",
        "attachment",
        "language_code",
        "market_name",
        "subscript_name",
        "project_code",
        "editor_type",
    )
    template_fields_renderers = {"content": "html"}  # noqa: RUF012 - Airflow's own attribute
    ui_color = "#e6f1f2"

    def __init__(
        self,
        *,
        mail_conn_id: str = "mail_default",
        mail_name: str | None = None,
        sender_mail: str,
        sender_name: str | None = None,
        subject: str | None = None,
        content: str | None = None,
        send_date: datetime | str | None = None,
        only_save: bool = False,
        send_list_names: Sequence[str] | None = None,
        repel_list_names: Sequence[str] | None = None,
        reply_to: str | None = None,
        attachment: Mapping[str, str] | None = None,
        language_code: str | None = None,
        market_name: str | None = None,
        subscript_name: str | None = None,
        project_code: str | None = None,
        editor_type: str | None = None,
        sandbox_mode: bool = False,
        ignore_differences: Collection[str] = (),
        on_incomplete: OnIncomplete = "fail",
        wait_for_completion: bool = False,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: float = 60.0,
        timeout: float = 24 * 60 * 60.0,
        cancel_on_kill: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flags(only_save=only_save, sandbox_mode=sandbox_mode, deferrable=deferrable)
        check_flags(wait_for_completion=wait_for_completion, cancel_on_kill=cancel_on_kill)
        check_number("poke_interval", poke_interval, above=True)
        check_number("timeout", timeout)
        if isinstance(ignore_differences, str):
            raise ValueError("ignore_differences: a list of fields is needed, not text")
        if on_incomplete not in ON_INCOMPLETE:
            raise ValueError(f"on_incomplete: {on_incomplete!r} is none of {', '.join(ON_INCOMPLETE)}")
        if on_incomplete == "keep" and not (wait_for_completion or only_save):
            raise ValueError(
                "on_incomplete: 'keep' needs wait_for_completion=True (or only_save=True): only waiting shows whether "
                "an incomplete campaign goes out"
            )
        if cancel_on_kill and not wait_for_completion:
            raise ValueError("cancel_on_kill: needs wait_for_completion=True: else there is no waiting task to kill")
        self.mail_conn_id = mail_conn_id
        self.mail_name = mail_name
        self.sender_mail = sender_mail
        self.sender_name = sender_name
        self.subject = subject
        self.content = content
        self.send_date = send_date
        self.only_save = only_save
        self.send_list_names = send_list_names
        self.repel_list_names = repel_list_names
        self.reply_to = reply_to
        self.attachment = attachment
        self.language_code = language_code
        self.market_name = market_name
        self.subscript_name = subscript_name
        self.project_code = project_code
        self.editor_type = editor_type
        self.sandbox_mode = sandbox_mode
        self.ignore_differences = ignore_differences
        self.on_incomplete = on_incomplete
        self.wait_for_completion = wait_for_completion
        self.deferrable = deferrable
        self.poke_interval = poke_interval
        self.timeout = timeout
        self.cancel_on_kill = cancel_on_kill

    def execute(self, context: Context) -> dict[str, Any]:
        """Adopt or create the campaign; then wait, if that is wanted."""
        with self.mail_errors():
            request = self._request(context)
            sandbox = self.sandbox_mode or self.hook.config.sandbox
            creation = self._create(request, sandbox, context)
        if creation.incomplete:
            self.log.warning("Campaign %r is incomplete and gone on with (guid %s).", creation.mail_name, creation.guid)
        elif creation.adopted:
            self.log.info("Campaign %r exists and is equal: adopted (guid %s).", creation.mail_name, creation.guid)
        elif sandbox:
            self.log.info("Sandbox: the service would create campaign %r; nothing was created.", creation.mail_name)
        else:
            self.log.info("Campaign %r created (id %s, guid %s).", creation.mail_name, creation.id, creation.guid)
        result: dict[str, Any] = {
            "mail_name": creation.mail_name,
            "id": creation.id,
            "guid": creation.guid,
            "adopted": creation.adopted,
            "incomplete": creation.incomplete,
        }
        for key, value in result.items():
            if value is not None:  # Airflow 3.0 cannot push nothing
                context["ti"].xcom_push(key=key, value=value)
        self._complain_if_failed(creation)
        result["sandbox"] = sandbox and not creation.adopted
        if not self.wait_for_completion or self.only_save or result["sandbox"]:
            return result
        return {**result, "mail_stats": self._wait(request, context)}

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event; what was created comes from XCom."""
        stats = mail_stats_of(event, time_up=AirflowException)
        ti = context["ti"]
        pushed = {
            key: ti.xcom_pull(task_ids=self.task_id, key=key, map_indexes=ti.map_index)
            for key in ("mail_name", "id", "guid", "adopted", "incomplete")
        }
        return {**pushed, "incomplete": bool(pushed["incomplete"]), "sandbox": False, "mail_stats": stats}

    def _create(self, request: CreateCampaign, sandbox: bool, context: Context) -> Creation:
        from airflow_provider_mail.api.creation import Memory, create_campaign
        from airflow_provider_mail.api.errors import MailError
        from airflow_provider_mail.hooks.campaign_memory import NO_MEMORY, CampaignMemory, task_memory

        # In the sandbox nothing is created, so there is nothing to remember.
        memory = Memory() if sandbox else task_memory(context, request.mail_name)
        creating = create_campaign(
            request, ignore=self.ignore_differences, on_incomplete=self.on_incomplete, memory=memory
        )
        try:
            return self.hook.run(self.unless_killed(creating, request.mail_name, context))
        except MailError as error:
            forgetful = isinstance(memory, CampaignMemory) and not memory.durable
            if forgetful and memory.incomplete and error.temporary and error.operation != request.path:
                raise AirflowFailException(
                    f"creating campaign {request.mail_name!r} was answered with code 500, and then it could not be "
                    f"looked for: {error}. It may have been kept incomplete: look at the service. {NO_MEMORY}"
                ) from error
            raise

    def _complain_if_failed(self, creation: Creation) -> None:
        """A campaign that was found and will not go out is no success, although it was created."""
        from airflow_provider_mail.api.campaigns import MailStatus

        if creation.found is not None and creation.found.mail_status == MailStatus.FAILED:
            raise AirflowFailException(
                f"campaign {creation.mail_name!r} exists, and the service reports that it failed (mailStatus 4): it "
                "does not go out. Delete it, or choose another mail_name"
            )

    def _request(self, context: Context) -> CreateCampaign:
        from airflow_provider_mail.api.campaigns import CreateCampaign

        given: dict[str, Any] = {
            "mail_name": default_mail_name(context) if self.mail_name is None else self.mail_name,
            "sender_mail": self.sender_mail,
            "sender_name": self.sender_name,
            "subject": self.subject,
            "content": self.content,
            "send_date": self.send_date,
            "only_save": self.only_save or None,
            "send_list_names": self.send_list_names,
            "repel_list_names": self.repel_list_names,
            "reply_to": self.reply_to,
            "attachment": self.attachment,
            "language_code": self.language_code,
            "market_name": self.market_name,
            "subscript_name": self.subscript_name,
            "project_code": self.project_code,
            "editor_type": self.editor_type,
            "sandbox_mode": self.sandbox_mode or None,
        }
        unknown = set(self.ignore_differences) - given.keys()
        if unknown:
            raise AirflowFailException(f"ignore_differences: there is no field {', '.join(sorted(unknown))}")
        return CreateCampaign(**{name: revealed(self, value, context) for name, value in given.items()})

    def _wait(self, request: CreateCampaign, context: Context) -> dict[str, Any]:
        """Look until it is over, or once and then let the triggerer look."""
        from airflow_provider_mail.api.waiting import CampaignWait, Outcome

        mail_name = request.mail_name
        send_time = request.send_date.timestamp() if request.send_date else 0.0
        end_time = max(time.time(), send_time) + self.timeout
        wait = CampaignWait(mail_name, seen=True, looked=True)
        while True:
            verdict = wait.judge(self.look_at(mail_name))
            self.log.info("%s", verdict.message)
            if verdict.outcome is not Outcome.WAITING:
                event = event_of(self.mail_conn_id, mail_name, verdict)
                return mail_stats_of(event, time_up=AirflowException)
            if self.deferrable:
                self._defer(mail_name, end_time, wait.not_before or send_time, context)
            left = end_time - time.time()
            if left <= 0:
                raise AirflowException(f"the time is up: {verdict.message}")
            self.rest(min(self.poke_interval, left))
            self.hook.run(self.heed_kill(mail_name, context))

    def _defer(self, mail_name: str, end_time: float, not_before: float, context: Context) -> NoReturn:
        from airflow_provider_mail.version_compat import AIRFLOW_V_3_3_PLUS

        if self.cancel_on_kill:
            # Airflow tells a process that its task was ended only after a while, and it may be gone by then.
            self.hook.run(self.end_if_ended(mail_name, context))
            if not AIRFLOW_V_3_3_PLUS:
                self.log.warning(
                    "cancel_on_kill: this Airflow (below 3.3) does not tell a deferred task that it was ended, so the "
                    "campaign will not be cancelled then. With deferrable=False it will."
                )
        self.defer(
            trigger=MailCampaignTrigger(
                mail_conn_id=self.mail_conn_id,
                mail_name=mail_name,
                poke_interval=self.poke_interval,
                end_time=end_time,
                not_before=not_before,
                seen=True,
                cancel_on_kill=self.cancel_on_kill,
            ),
            method_name="execute_complete",
            # The trigger keeps the time itself; this one is for a triggerer that is not there.
            timeout=timedelta(seconds=end_time - time.time() + self.poke_interval + 60),
        )


class MailCancelCampaignOperator(BaseRemoveOperator):
    """Cancels a campaign that waits for its send time.

    A draft, and what is cancelled already, is left alone. One whose send time has passed fails the task.

    Returns ``mail_name``, ``cancelled`` and ``sandbox``.

    .. seealso::
        For more information on how to use this operator, see ``docs/campaigns.md``.

    :param mail_name: its exact name.
    """

    template_fields: Sequence[str] = (*BaseRemoveOperator.template_fields, "mail_name")
    thing = "campaign"
    done = "cancelled"

    def __init__(self, *, mail_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mail_name = mail_name

    @property
    def identity(self) -> dict[str, str]:
        return {"mail_name": self.mail_name}

    def removal(self, context: Context) -> Flow[bool]:
        from airflow_provider_mail.api.campaigns import CancelCampaign
        from airflow_provider_mail.api.cancelling import end_campaign

        request = CancelCampaign(mail_name=self.mail_name, sandbox_mode=self.sandbox_mode or None)
        return end_campaign(request, missing_ok=self.ignore_if_missing)


class MailDeleteCampaignOperator(BaseDeleteOperator):
    """Deletes a campaign for good, its statistics with it as far as the service does so.

    Returns ``mail_name``, ``deleted`` and ``sandbox``.

    .. seealso::
        For more information on how to use this operator, see ``docs/campaigns.md``.

    :param mail_name: its exact name.
    """

    template_fields: Sequence[str] = (*BaseDeleteOperator.template_fields, "mail_name")
    thing = "campaign"

    def __init__(self, *, mail_name: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mail_name = mail_name

    @property
    def identity(self) -> dict[str, str]:
        return {"mail_name": self.mail_name}

    def deletion(self, context: Context) -> DeleteCampaign:
        from airflow_provider_mail.api.campaigns import DeleteCampaign

        return DeleteCampaign(mail_name=self.mail_name, sandbox_mode=self.sandbox_mode or None)


def default_mail_name(context: Context) -> str:
    """The name of a task instance's campaign: the same for every try."""
    return task_instance_name(context, MAX_NAME_BYTES)
