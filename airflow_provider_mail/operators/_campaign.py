"""Base classes of the operators that take the arguments of a campaign, and that wait for it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.checks import argument_error
from airflow_provider_mail._task.mixin import MailTaskMixin, task_instance_name
from airflow_provider_mail._task.rendering import unwrap
from airflow_provider_mail._task.rules import list_names
from airflow_provider_mail._task.waiting import WaitingMixin
from airflow_provider_mail.version_compat import AIRFLOW_V_3_3_PLUS, AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api._core.requests import Flow
    from airflow_provider_mail.api.campaigns import CreateCampaign
    from airflow_provider_mail.api.flows.polling import PollDecision, PollErrorBudget
    from airflow_provider_mail.api.flows.waits import CampaignWait, PollResult
    from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger

T = TypeVar("T")

KILL_POLL_SECONDS = 0.5
"""Seconds between checks whether the task was killed: Airflow ends the process after five."""


class BaseCampaignOperator(MailTaskMixin, BaseOperator):
    """Has the arguments of a campaign (specification, ``/v5/campaign/mail/sends``), named as in ``CreateCampaign``."""

    template_fields_renderers = {"content": "html"}  # noqa: RUF012 - Airflow's own attribute
    ui_color = "#e6f1f2"
    required_texts = ("subject", "content")
    elsewhere: ClassVar = {
        "template_name": (
            "write content='newsletter.html', a file in the DAG's folder: the service creates campaigns from content "
            "only. Stored templates are for MailSendBatchOperator"
        )
    }

    mail_name: str | None
    only_save: bool
    audience: Any = None
    ignore_differences: Collection[str]
    adopt_older: bool
    allow_past_send_date: bool

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any], *, mapped: bool = False) -> None:
        super().check_arguments(arguments, mapped=mapped)
        lists, only_save = arguments.get("send_list_names", ...), arguments.get("only_save", ...)
        audience = arguments.get("audience")
        # A mapped task may pass either of them to each of its instances.
        if (
            only_save is False
            and audience is None
            and (lists is None or (isinstance(lists, str | list | tuple) and not lists))
        ):
            problem = "send_list_names: required unless only_save is true; name at least one list, or give an audience"
            raise argument_error(problem, mapped=mapped)

    def request(self, context: Context) -> CreateCampaign:
        """Build the request that creates the campaign.

        :raises MailValidationError: naming each field that is wrong.
        :raises AirflowFailException: when ``ignore_differences`` names a field that does not exist.
        """
        from airflow_provider_mail.api.campaigns import CreateCampaign

        if unknown := sorted(set(self.ignore_differences) - CreateCampaign.model_fields.keys()):
            raise AirflowFailException(f"ignore_differences: there is no field {', '.join(unknown)}")
        lists = ("send_list_names", "repel_list_names")
        fields: dict[str, Any] = {name: list_names(name, unwrap(self, getattr(self, name), context)) for name in lists}
        if (audience := unwrap(self, self.audience, context)) is not None:
            for name, names in audience_lists(audience).items():
                fields[name] = [*names, *(fields[name] or ())] or None
        if self.mail_name is None:
            fields["mail_name"] = default_mail_name(context)
        return self.build_request(CreateCampaign, context, **fields)

    def is_audience_in_sandbox(self, context: Context) -> bool:
        """Return whether an import of the audience ran in sandbox mode, which makes no list."""
        audience = unwrap(self, self.audience, context)
        results = [audience] if isinstance(audience, Mapping) else audience or ()
        return any(result.get("sandbox") for result in results)

    def not_older_than(self, context: Context) -> datetime | None:
        """Return the earliest send time of a campaign that may be this run's own; ``None`` if it may adopt any."""
        # The default name contains the run's id.
        return None if self.adopt_older or self.mail_name is None else run_began(context)


class WaitForCampaignMixin(WaitingMixin):
    """Mixin for operators that wait for their campaign, and cancel it when the task is marked failed or successful.

    Airflow sends a signal at any time, also if only the process ends: when a worker is drained or a task is cleared. So
    the signal is recorded, and handled between two requests or during a sleep.
    """

    cancel_on_kill: bool
    task_id: str
    _awaited = ""
    """The name of the campaign that is awaited."""
    _send_time = 0.0
    """Its Unix time by the local clock; 0 without one."""
    _killed = False

    def on_kill(self) -> None:
        self._killed = self.cancel_on_kill

    def sleep_interruptibly(self, seconds: float) -> None:
        """Sleep; wake early when the task is killed. (A signal alone does not end ``time.sleep``.)"""
        end = time.monotonic() + seconds
        while not self._killed and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, KILL_POLL_SECONDS))

    def unless_killed(self, flow: Flow[T], mail_name: str, context: Context) -> Flow[T]:
        """Run the flow; check between two steps whether the task was killed, so that nothing is created afterwards."""
        from airflow_provider_mail.api._core.exchange import FlowRunner
        from airflow_provider_mail.api.errors import MailError

        runner = FlowRunner(flow)
        while runner.step is not None:
            yield from self.check_kill(mail_name, context)
            try:
                response = yield runner.step
            except MailError as error:
                runner.fail(error)
            else:
                runner.send(response)
        yield from self.check_kill(mail_name, context)
        result: T = runner.result
        return result

    def check_kill(self, mail_name: str, context: Context) -> Flow[None]:
        """Handle the signal, if one was received.

        :raises AirflowFailException: when the task was ended, after cancelling the campaign.
        """
        if self._killed:
            self._killed = False
            yield from self.cancel_if_task_ended(mail_name, context)
            self.log.warning("This process is to end, but not the task: campaign %r is not cancelled.", mail_name)

    def cancel_if_task_ended(self, mail_name: str, context: Context) -> Flow[None]:
        """Cancel the campaign and fail, if the task was marked failed or successful.

        :raises AirflowFailException: with the result of the cancellation.
        """
        from airflow_provider_mail._task.waiting import was_ended
        from airflow_provider_mail.api.flows.cancel_campaign import cancel_campaign

        if was_ended(context["ti"]):
            cancellation = yield from cancel_campaign(mail_name, self.hook.get_conn().service_clock)
            raise AirflowFailException(f"the task was ended while it ran: campaign {mail_name!r} {cancellation.text}")

    def wait_until_sent(self, request: CreateCampaign, context: Context) -> dict[str, Any]:
        """Poll until the wait is over, or once and then defer to the triggerer; return the counts.

        :raises AirflowFailException: when the campaign will not be sent.
        :raises AirflowException: when the polls failed for too long, or the wait timed out.
        """
        from airflow_provider_mail.api.errors import MailError
        from airflow_provider_mail.api.flows.polling import WaitStatus

        self._awaited = mail_name = request.mail_name
        # The send date is in the service's time.
        self.clock_offset = self.hook.get_conn().service_clock.offset
        self._send_time = request.send_date.timestamp() - self.clock_offset if request.send_date else 0.0
        self._end_time = max(time.time(), self._send_time) + self.timeout
        while (decision := self.next_decision(context)).status is WaitStatus.WAITING:
            if self.deferrable:
                self._before_deferral(mail_name, context)
                self.defer_wait()
            left = self._end_time - time.time()
            if left <= 0:
                decision = decision.at_deadline()
                break
            # The task occupies its worker slot anyway, so only failed polls are repeated more slowly.
            pause = decision.pause if isinstance(self._result, MailError) else 0.0
            self.sleep_interruptibly(min(max(self.poke_interval, pause), left))
            self.hook.run(self.check_kill(mail_name, context))
        return self.end_wait(decision.for_connection(self.conn_id))

    def poll(self, context: Context) -> PollResult:
        from airflow_provider_mail.api.campaigns import find_campaign

        return self.ask(find_campaign(self._awaited))

    def new_wait(self, errors: PollErrorBudget, state: dict[str, Any] | None) -> CampaignWait:
        from airflow_provider_mail.api.flows.waits import CampaignWait

        errors.polled_before = True
        return CampaignWait(self._awaited, errors, seen=True, scheduled=self._send_time > 0)

    def trigger(self, end_time: float) -> MailCampaignTrigger:
        from airflow_provider_mail.api.campaigns import Campaign
        from airflow_provider_mail.triggers.campaigns import MailCampaignTrigger

        now = time.time()
        if isinstance(self._result, Campaign) and self._decision:
            self._send_time = now + self._decision.pause
        return MailCampaignTrigger(
            mail_conn_id=self.mail_conn_id,
            mail_name=self._awaited,
            poke_interval=self.poke_interval,
            end_time=end_time,
            not_before=self._send_time if self._send_time > now else 0.0,
            seen=True,
            cancel_on_kill=self.cancel_on_kill,
            poll_error_timeout=self.poll_error_timeout,
        )

    def last_look(self, context: Context) -> PollDecision:
        ti = context["ti"]
        self._awaited = ti.xcom_pull(task_ids=self.task_id, key="mail_name", map_indexes=ti.map_index)
        return super().last_look(context)

    def _before_deferral(self, mail_name: str, context: Context) -> None:
        if not self.cancel_on_kill:
            return
        # Airflow informs a process late that its task was ended; by then, the process may have exited.
        self.hook.run(self.cancel_if_task_ended(mail_name, context))
        if not AIRFLOW_V_3_3_PLUS:
            self.log.warning(
                "cancel_on_kill: this Airflow (below 3.3) does not tell a deferred task that it was ended, so the "
                "campaign will not be cancelled then. With deferrable=False it will."
            )


def run_began(context: Context) -> datetime:
    """Return the latest time before which no try of the DAG run can have sent anything.

    ``start_date`` is when the scheduler started the run, also for backfill and catch-up runs, whose ``run_after`` lies
    far in the past. Retries and deferral do not change it, but clearing does. A cleared run has sent nothing before
    ``run_after``; for a backfill, the time since then would include the campaigns of other runs.
    """
    dag_run = context["dag_run"]
    started = dag_run.start_date or dag_run.run_after
    if dag_run.clear_number and dag_run.run_type != "backfill":
        started = min(started, dag_run.run_after)
    return started


def default_mail_name(context: Context) -> str:
    """Return the name of a task instance's campaign, the same for every try."""
    from airflow_provider_mail.api._core.fields import MAX_MAIL_NAME_BYTES

    return task_instance_name(context, MAX_MAIL_NAME_BYTES)


def audience_lists(value: Any) -> dict[str, list[str]]:
    """Return the lists of an audience, for the fields of a campaign.

    :param value: the result of an import, or the results of a mapped one.
    :raises MailValidationError: when it is not, or the import was a dry run.
    """
    from airflow_provider_mail.api.errors import MailValidationError

    results = [value] if isinstance(value, Mapping) else list(value)
    lists: dict[str, list[str]] = {"send_list_names": [], "repel_list_names": []}
    for result in results:
        if result.get("dry_run"):
            raise MailValidationError("audience: the import was a dry run, which makes no list")
        for argument, names in lists.items():
            names += [name for name in list_names(argument, result.get(argument)) or [] if name not in names]
    if not lists["send_list_names"]:
        raise MailValidationError(
            "audience: the import has no list; give it a list_name. It is the result of a task that imports contacts, "
            "such as audience=task.output"
        )
    return lists
