"""Campaigns: create exactly once, cancel, delete."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from airflow_provider_mail._task.mixin import SendGuardMixin, Templated
from airflow_provider_mail._task.waiting import DEFERRABLE, WaitingMixin, was_ended
from airflow_provider_mail.api.errors import MailConfigError, MailError
from airflow_provider_mail.api.flows.waits import CampaignWait, PollDecision, PollResult, WaitStatus
from airflow_provider_mail.lineage import MailLineage
from airflow_provider_mail.links import MailCampaignLink, push_campaign_link
from airflow_provider_mail.operators._base import BaseCampaignOperator, BaseDeleteOperator, BaseNamedOperator
from airflow_provider_mail.version_compat import AIRFLOW_V_3_3_PLUS, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._audience.memory import Cap, Memory
    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.api._core.requests import Client
    from airflow_provider_mail.api.campaigns import CreateCampaign
    from airflow_provider_mail.api.flows.create_once import Creation
    from airflow_provider_mail.send_window import SendWindow
    from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger

__all__ = ["MailCancelCampaignOperator", "MailCreateCampaignOperator", "MailDeleteCampaignOperator"]

CAMPAIGN_KEY = "campaign"
"""The XCom with the created or adopted campaign, from before the wait. ``dag.test()`` loses arguments of a deferral."""

OnIncomplete: TypeAlias = Literal["cancel", "keep", "fail"]
"""What to do with a campaign that the service kept although creating it failed: cancel it and fail; continue with it if
it is or will be sent; or leave it and fail."""

KILL_POLL_SECONDS = 0.5
"""Seconds between checks whether the task was killed: Airflow ends the process after five."""


class MailCreateCampaignOperator(MailLineage, SendGuardMixin, WaitingMixin, BaseCampaignOperator):
    """Create a campaign to contact lists, exactly once, regardless of the number of tries.

    ``mailName`` is unique within a team and chosen before the first request. Every try looks it up first. A campaign of
    that name with equal content is adopted; a different one fails the task, naming the differences, and so does one
    that another run or task created (``adopt_older``). If there is none, the campaign is created, unless an earlier try
    created one that is gone. So clearing the task does not send again, unless ``send_again``.

    Returns ``mail_name``, ``guid``, ``adopted``, ``incomplete``, ``sandbox`` and, after a wait, ``mail_stats``. A task
    that waits pushes the others before, as the XCom ``campaign``. When the connection has a ``campaign_url``, the task
    links to its campaign.

    .. seealso:: the guide :ref:`howto/operator:MailCreateCampaignOperator`
        (in the package: ``airflow_provider_mail/docs/campaigns.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param mail_name: the name of the campaign, 200 bytes at most, unique within the team: different in every run, and
        the same in every try. Default: made of dag id, task id and run id, and in a mapped task a digest of the lists,
        after ``[mail] name_prefix`` of Airflow's configuration: give names if it maps several campaigns to the same
        lists. (templated)
    :param sender_mail: a verified sender of the account. (templated)
    :param sender_name: the display name of the sender. Default: ``sender_mail``. (templated)
    :param subject: the subject. It may contain tags; since Airflow renders the field, write them as
        ``{% raw %}{{tag}}{% endraw %}``. Default: none. (templated)
    :param content: HTML, with tags in the same form; or the name of a file (``.html``, ``.htm``, ``.txt``) in the DAG's
        folder or in ``template_searchpath``, which is rendered as well. Default: none. (templated)
    :param allow_blank: send it although an argument that recipients see, such as ``subject`` or ``content``, is missing
        or blank, or a template rendered it to nothing or to the text ``None``. A draft may be blank anyway. Default:
        false, the task fails before anything is sent.
    :param send_date: the send time: a datetime with a zone or ISO 8601 text with one. Default: now. A campaign that
        would be created more than five minutes after it fails the task, unless ``allow_past_send_date``. (templated)
    :param send_window: the hours and days at which it may go out, see
        :class:`~airflow_provider_mail.send_window.SendWindow`: a send time outside of it is moved to its next opening,
        and no try sends after that opening has closed. Default: at any time.
    :param max_run_age: nothing is sent when the run was due longer ago, as in catch-up or a backfill; seconds or a
        timedelta. Default: a run of any age sends.
    :param on_old_run: what the task does then: ``fail``, or ``skip``. Default: ``fail``.
    :param only_save: save a draft and send nothing. Default: false.
    :param audience: whom it is sent to: the result of a task that imports contacts, or of a mapped one, as in
        ``audience=task.output``. Lists that are named besides are added, unless only changes of an exact audience are
        imported. Default: none. (templated)
    :param send_list_names: the target lists; this or ``audience`` is required unless ``only_save``. One name may be
        given as text, and a template such as ``"{{ params.lists }}"`` may render to a list. (templated)
    :param repel_list_names: the exclusion lists, in the same forms. Default: none. (templated)
    :param reply_to: the address for replies. Default: ``sender_mail``. (templated)
    :param attachment: one file: a path or URL as Airflow's ``ObjectStoragePath`` takes it, which is read when the task
        runs; or ``{"file_name": ..., "file_data": <Base64>}``. Default: none. (templated)
    :param language_code: the language of system modules such as the unsubscribe link. Default: the service's.
        (templated)
    :param market_name: the activity that the campaign belongs to; created when missing. Default: none. (templated)
    :param subscript_name: the subscription type, which must exist. Default: none. (templated)
    :param project_code: the project, created when missing. Default: none. (templated)
    :param editor_type: the service's editor: ``CLASSIC`` or ``DRAG``. Default: the service's. (templated)
    :param sandbox_mode: let the service check the request and create nothing. Default: false.
    :param ignore_differences: names of fields that are not compared when an existing campaign is adopted, such as
        ``["content"]`` where the service rewrites it. Default: none.
    :param adopt_older: adopt an equal campaign of that name even if another run or task created it, whether it is
        scheduled or sent. Default: false, the task fails; with a constant ``mail_name`` every run but the first would
        succeed and mail nobody.
    :param send_again: let a cleared task create a campaign although an earlier try created one that was sent and is
        gone, or that has another name: everybody may be mailed again. An automatic retry never does. Default: false.
    :param replace_scheduled: cancel, delete and create anew a campaign of this task that is scheduled and differs, as
        after a correction: nobody was mailed yet. Default: false, the task fails and names what differs.
    :param allow_past_send_date: create the campaign although its ``send_date`` lies in the past: the service sends it
        at once. Default: false.
    :param on_incomplete: what to do when the service responds with code 500 and keeps the campaign (adding the
        attachment or the service's check failed): ``fail`` (default) fails and describes the campaign, ``cancel``
        cancels the campaign and fails, ``keep`` continues with it and succeeds if it is sent (needs
        ``wait_for_completion`` or ``only_save``).
    :param wait_for_completion: wait until the campaign was sent (``mailStatus`` 2). Default: false. The arguments below
        are used only while waiting.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: the time between polls; seconds or a timedelta. Default: 60 seconds.
    :param poll_error_timeout: the time for which consecutive polls may fail before the wait ends and the task is
        retried according to its ``retries``; seconds or a timedelta. Default: 600 seconds.
    :param timeout: the maximum time to wait for completion, from the creation or, if later, from ``send_date``; seconds
        or a timedelta. Default: a day.
    :param cancel_on_kill: cancel the campaign, as long as its send time is ahead, when the waiting task is marked
        failed or successful; not when it is cleared, retried or moved to another process. While the task is deferred
        this needs Airflow 3.3 and a running trigger: marked within the first seconds, or while no triggerer runs, use
        ``airflow mail stop``. Default: false.
    """

    operator_extra_links = (MailCampaignLink(),)

    send_date: Any
    on_incomplete: OnIncomplete
    send_again: bool
    replace_scheduled: bool
    wait_for_completion: bool
    cancel_on_kill: bool

    _awaited = ""
    """The name of the campaign that is awaited, as the service has it."""
    _guid: str | None = None
    _send_time = 0.0
    """Its Unix time by the local clock; 0 without one."""
    _killed = False

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        mail_name: Templated[str] | None = None,
        sender_mail: Templated[str],
        sender_name: Templated[str] | None = None,
        subject: Templated[str] | None = None,
        content: Templated[str] | None = None,
        allow_blank: bool = False,
        send_date: Templated[datetime] | None = None,
        send_window: SendWindow | None = None,
        max_run_age: float | timedelta | None = None,
        on_old_run: Literal["fail", "skip"] = "fail",
        only_save: bool = False,
        audience: Templated[Mapping[str, Any] | Sequence[Templated[Mapping[str, Any]]]] | None = None,
        send_list_names: Templated[Sequence[Templated[str]]] | None = None,
        repel_list_names: Templated[Sequence[Templated[str]]] | None = None,
        reply_to: Templated[str] | None = None,
        attachment: Templated[Mapping[str, Templated[str]] | ObjectStoragePath] | None = None,
        language_code: Templated[str] | None = None,
        market_name: Templated[str] | None = None,
        subscript_name: Templated[str] | None = None,
        project_code: Templated[str] | None = None,
        editor_type: Templated[Literal["CLASSIC", "DRAG"]] | None = None,
        sandbox_mode: bool = False,
        ignore_differences: Collection[str] = (),
        adopt_older: bool = False,
        send_again: bool = False,
        replace_scheduled: bool = False,
        allow_past_send_date: bool = False,
        on_incomplete: OnIncomplete = "fail",
        wait_for_completion: bool = False,
        deferrable: bool = DEFERRABLE,
        poke_interval: float | timedelta = 60.0,
        poll_error_timeout: float | timedelta = 600.0,
        timeout: float | timedelta = 24 * 60 * 60.0,
        cancel_on_kill: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())
        if on_incomplete == "keep" and not (wait_for_completion or only_save):
            raise self.argument_error(
                "on_incomplete: 'keep' needs wait_for_completion=True (or only_save=True): only waiting shows whether "
                "an incomplete campaign goes out"
            )
        # The defaults of the configuration and of the DAG may be true for tasks that do not wait.
        explicit = deferrable and not DEFERRABLE and not (kwargs.get("default_args") or {}).get("deferrable")
        if explicit and not wait_for_completion:
            raise self.argument_error("deferrable: needs wait_for_completion=True: else the task waits for nothing")
        if cancel_on_kill and not wait_for_completion:
            raise self.argument_error("cancel_on_kill: needs wait_for_completion=True: else no task waits to be killed")

    def execute(self, context: Context) -> dict[str, Any]:
        """Adopt or create the campaign; then wait for completion if ``wait_for_completion``."""
        from airflow_provider_mail.api.campaigns import MailStatus, no_counts

        with self.mail_errors():
            request = self.request(context)
            request = request.model_copy(update={"send_date": self.fitted_send_date(context)})
            sandbox = self.sandbox_mode or self.hook.config.sandbox
            if sandbox and self.is_audience_in_sandbox():
                self.log.info("Sandbox: the lists of the audience were not made; the service checks the rest.")
                request = request.model_copy(
                    update={"only_save": True, "send_list_names": None, "repel_list_names": None}
                )
            memory, imports = self._remembered(sandbox)
            if memory is not None and request.send_date is not None:
                memory.schedule(imports, at=int(request.send_date.timestamp()))
            creation = self._create(request, sandbox, context)
            if memory is not None:
                memory.mark_sent(imports)
        if creation.incomplete:
            self.log.warning("Continuing with incomplete campaign %r (guid %s).", creation.mail_name, creation.guid)
        elif creation.adopted:
            self.log.info("Campaign %r exists and is equal: adopted (guid %s).", creation.mail_name, creation.guid)
        elif sandbox:
            self.log.info("Sandbox: the service would create campaign %r; nothing was created.", creation.mail_name)
        else:
            self.log.info("Campaign %r created (guid %s).", creation.mail_name, creation.guid)
        if creation.adopted or not sandbox:
            push_campaign_link(self, context, creation.mail_name, creation.guid)
            self._note_lineage()
        if creation.mail_status == MailStatus.FAILED:
            raise AirflowFailException(
                f"campaign {creation.mail_name!r} exists, and the service reports that it failed (mailStatus 4). Look "
                "at the service whether it reached somebody: they are mailed again if you delete it, or choose another "
                "mail_name, and clear the task with send_again=True"
            )
        result = creation.model_dump(include={"mail_name", "guid", "adopted", "incomplete"})
        result["sandbox"] = sandbox and not creation.adopted
        if not self.wait_for_completion or self.only_save:
            return result
        if result["sandbox"]:
            return {**result, "mail_stats": no_counts()}
        context["ti"].xcom_push(key=CAMPAIGN_KEY, value=result)
        stats = self.wait_until_sent(creation, request.send_date, context)
        self._mark_sent(context)
        return {**result, "mail_stats": stats}

    def _remembered(self, sandbox: bool) -> tuple[Memory | None, dict[str, Cap | None]]:
        """Return the memory, and the imports that have reserved mails, with their caps; ``None`` if none has."""
        results = [result for result in self._audience_results() if result.get("memory_tasks")]
        if sandbox or self.only_save or not results:
            return None, {}
        from airflow_provider_mail._audience.memory import Cap, Memory

        if (memory := Memory.configured()) is None:
            raise MailConfigError("[mail] memory_conn_id: is not set, and the import of the audience had a memory")
        memory.check()
        caps = {task: result["memory_at_most"] for result in results for task in result["memory_tasks"]}
        return memory, {task: cap and Cap(*cap) for task, cap in caps.items()}

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Read the trigger's event, and the created campaign from XCom."""
        stats = self.end_deferral(event)
        self._mark_sent(context)
        self._note_lineage()
        return {**self._pushed(context), "mail_stats": stats}

    def _note_lineage(self) -> None:
        for name in self.lists()["send_list_names"] or ():
            self.moved(f"lists/{name}", "campaigns")

    def _pushed(self, context: Context) -> dict[str, Any]:
        ti = context["ti"]
        campaign: dict[str, Any] = ti.xcom_pull(task_ids=self.task_id, key=CAMPAIGN_KEY, map_indexes=ti.map_index)
        return campaign

    @staticmethod
    def _mark_sent(context: Context) -> None:
        """Record that the campaign was sent, so that no later try creates it again."""
        from airflow_provider_mail._task.state import creation_state

        creation_state(context).note(seen=True, sends_at=0.0)

    def _create(self, request: CreateCampaign, sandbox: bool, context: Context) -> Creation:
        from airflow_provider_mail._task.state import NOT_STORED, creation_state
        from airflow_provider_mail.api._core.pacing import KillGuard
        from airflow_provider_mail.api.flows.create_campaign import create_campaign
        from airflow_provider_mail.api.flows.create_once import CreationState

        # In the sandbox nothing is created, so there is no state to store.
        state = (
            CreationState()
            if sandbox
            else creation_state(context, own_name=self.mail_name is None, send_again=self.send_again)
        )
        guard = KillGuard(partial(self.check_kill, request.mail_name, context), self.sleep_interruptibly)
        try:
            with guard.active():
                creation = create_campaign(
                    self.hook.get_conn(),
                    request,
                    ignore=self.ignore_differences,
                    on_incomplete=self.on_incomplete,
                    state=state,
                    replace_scheduled=self.replace_scheduled,
                    # Within the window, a campaign that is created later than planned is sent at once.
                    allow_past_send_date=self.allow_past_send_date or bool(self.send_window and not self.send_date),
                    not_older_than=self.not_older_than(context),
                    caps=None if sandbox else self.hook.caps,
                    check_lists=self.check_lists,
                )
            self.check_kill(request.mail_name, context)
            return creation
        except MailError as error:
            not_stored = not (sandbox or state.knows_all)
            if not_stored and state.creation.incomplete and error.temporary and error.operation != request.path:
                raise AirflowFailException(
                    f"creating campaign {request.mail_name!r} was answered with code 500, and then it could not be "
                    f"looked for: {error}. It may have been kept incomplete: look at the service. {NOT_STORED}"
                ) from error
            raise

    def on_kill(self) -> None:
        # Airflow sends a signal at any time, also if only the process ends: when a worker is drained or a task is
        # cleared. So the signal is recorded, and handled between two requests or during a sleep.
        self._killed = self.cancel_on_kill

    def sleep_interruptibly(self, seconds: float) -> None:
        """Sleep; wake early when the task is killed. (A signal alone does not end ``time.sleep``.)"""
        end = time.monotonic() + seconds
        while not self._killed and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, KILL_POLL_SECONDS))

    def check_kill(self, mail_name: str, context: Context) -> None:
        """Handle the signal, if one was received.

        :raises AirflowFailException: when the task was ended, after cancelling the campaign.
        """
        if self._killed:
            self._killed = False
            self.cancel_if_task_ended(mail_name, context)
            self.log.warning("This process is to end, but not the task: campaign %r is not cancelled.", mail_name)

    def cancel_if_task_ended(self, mail_name: str, context: Context) -> None:
        """Cancel the campaign and fail, if the task was marked failed or successful.

        :raises AirflowFailException: with the result of the cancellation.
        """
        from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign

        if was_ended(context["ti"]):
            cancellation = cancel_campaign(self.hook.get_conn(), mail_name)
            raise AirflowFailException(f"the task was ended while it ran: campaign {mail_name!r} {cancellation.text}")

    def wait_until_sent(self, creation: Creation, send_date: datetime | None, context: Context) -> dict[str, Any]:
        """Poll until the wait is over, or once and then defer to the triggerer; return the counts.

        :raises AirflowFailException: when the campaign will not be sent.
        :raises AirflowException: when the polls failed for too long, or the wait timed out.
        """
        self._awaited, self._guid = creation.mail_name, creation.guid
        # The send date is in the service's time.
        self.clock_offset = self.hook.get_conn().service_clock.offset
        self._send_time = send_date.timestamp() - self.clock_offset if send_date else 0.0
        self._end_time = max(time.time(), self._send_time) + self.timeout
        while (decision := self.next_decision(context)).status is WaitStatus.WAITING:
            if self.deferrable:
                self._before_deferral(self._awaited, context)
                self.defer_wait(context)
            left = self._end_time - time.time()
            if left <= 0:
                decision = decision.at_deadline()
                break
            # The task occupies its worker slot anyway, so only failed polls are repeated more slowly.
            pause = decision.pause if isinstance(self._result, MailError) else 0.0
            self.sleep_interruptibly(min(max(self.poke_interval, pause), left))
            self.check_kill(self._awaited, context)
        return self.end_wait(decision.for_connection(self.conn_id))

    def poll(self, context: Context) -> PollResult:
        from airflow_provider_mail.api.campaigns import Campaign, find_campaign

        result = self.ask(find_campaign, self._awaited, self._guid)
        if isinstance(result, Campaign):
            self._awaited = result.mail_name
        return result

    def new_wait(self, **options: Any) -> CampaignWait:
        return CampaignWait(self._awaited, polled_before=True, seen=True, scheduled=self._send_time > 0, **options)

    def trigger(self, **options: Any) -> MailCampaignTrigger:
        from airflow_provider_mail.api.campaigns import Campaign
        from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger

        now = time.time()
        if isinstance(self._result, Campaign) and self._decision:
            self._send_time = now + self._decision.pause
        return MailCampaignTrigger(
            mail_conn_id=self.mail_conn_id,
            mail_name=self._awaited,
            guid=self._guid,
            not_before=self._send_time if self._send_time > now else 0.0,
            seen=True,
            cancel_on_kill=self.cancel_on_kill,
            **options,
        )

    def last_look(self, context: Context) -> PollDecision:
        campaign = self._pushed(context)
        self._awaited, self._guid = campaign["mail_name"], campaign["guid"]
        return super().last_look(context)

    def _before_deferral(self, mail_name: str, context: Context) -> None:
        if not self.cancel_on_kill:
            return
        # Airflow informs a process late that its task was ended; by then, the process may have exited.
        self.cancel_if_task_ended(mail_name, context)
        self.log.info(
            "cancel_on_kill: the campaign is cancelled when this task is marked failed or successful while its trigger "
            "runs. Marked before a triggerer has started it, or while none runs, the campaign goes out: then run "
            "`airflow mail stop --conn-id %s --prefix %r`.", self.mail_conn_id, mail_name,
        )  # fmt: skip
        if not AIRFLOW_V_3_3_PLUS:
            self.log.warning(
                "cancel_on_kill: this Airflow (below 3.3) does not tell a deferred task that it was ended, so the "
                "campaign will not be cancelled then. With deferrable=False it will."
            )


class MailCancelCampaignOperator(BaseNamedOperator):
    """Cancel a campaign that waits for its send time.

    A campaign whose send time has passed fails the task. So does a campaign that shows as a draft and whose
    cancellation is rejected, since the service does not show whether it is cancelled (``ignore_draft``).

    Returns ``mail_name``, ``cancelled`` and ``sandbox``.

    .. seealso:: the guide :ref:`howto/operator:MailCancelCampaignOperator`
        (in the package: ``airflow_provider_mail/docs/campaigns.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param mail_name: the exact name of the campaign. (templated)
    :param ignore_if_missing: succeed when there is no such campaign, as in a second try after a success. If false, the
        task fails. Default: true.
    :param ignore_draft: succeed when the campaign shows as a draft and the service rejects its cancellation: it was
        only saved, or cancelled before. Default: false, the task fails: a scheduled one may show as a draft, too.
    :param sandbox_mode: let the service check the request and change nothing. Default: false.
    """

    thing = "campaign"
    identified_by = ("mail_name",)
    done = "cancelled"

    ignore_if_missing: bool
    ignore_draft: bool

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        mail_name: Templated[str],
        ignore_if_missing: bool = True,
        ignore_draft: bool = False,
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())

    def change(self, client: Client) -> bool:
        from airflow_provider_mail.api.campaigns import CancelCampaign
        from airflow_provider_mail.api.flows.cancel_campaign import end_campaign

        return end_campaign(
            client,
            self.build_request(CancelCampaign),
            missing_ok=self.ignore_if_missing,
            ignore_draft=self.ignore_draft,
        )


class MailDeleteCampaignOperator(BaseDeleteOperator):
    """Delete a campaign permanently, and its statistics as far as the service deletes them.

    Returns ``mail_name``, ``deleted`` and ``sandbox``.

    .. seealso:: the guide :ref:`howto/operator:MailDeleteCampaignOperator`
        (in the package: ``airflow_provider_mail/docs/campaigns.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param mail_name: the exact name of the campaign. (templated)
    :param ignore_if_missing: succeed when there is no such campaign, as in a second try after a success. If false, the
        task fails. Default: true.
    :param sandbox_mode: let the service check the request and change nothing. Default: false.
    """

    operation = "DeleteCampaign"
    thing = "campaign"
    identified_by = ("mail_name",)

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        mail_name: Templated[str],
        ignore_if_missing: bool = True,
        sandbox_mode: bool = False,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super().__init__(**kwargs)
        self.set_arguments(**locals())
