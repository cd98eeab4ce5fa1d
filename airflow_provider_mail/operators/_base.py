"""Base classes of the operators: of all, of those of a campaign, and of those that create or delete by name."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.checks import argument_error, unwrap
from airflow_provider_mail._task.mixin import MailTaskMixin, OnEmpty, task_instance_name
from airflow_provider_mail._task.rules import list_names
from airflow_provider_mail.api.errors import MailValidationError
from airflow_provider_mail.version_compat import AirflowFailException, AirflowSkipException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api._core.pacing import Interrupt
    from airflow_provider_mail.api._core.requests import Client, MailRequest
    from airflow_provider_mail.api.campaigns import CreateCampaign


class BaseMailOperator(MailTaskMixin, BaseOperator):
    ui_color = "#e6f1f2"


class BaseInterruptibleOperator(BaseMailOperator):
    """Operator whose concurrent requests end within seconds when the task is killed."""

    on_empty: OnEmpty = "continue"
    _interrupt: Interrupt | None = None
    _killed = False

    def new_interrupt(self) -> Interrupt:
        """Return what ends the requests of one import, or of one reading, when the task is killed."""
        from airflow_provider_mail.api._core.pacing import Interrupt

        self._interrupt = Interrupt()
        if self._killed:
            self._interrupt.stop()
        return self._interrupt

    def on_nothing(self, problem: str) -> None:
        """Handle a source without rows or messages, as ``on_empty`` says."""
        if self.on_empty == "error":
            raise AirflowFailException(f"{problem}. To accept that, set on_empty='skip' or 'continue'")
        if self.on_empty == "skip":
            raise AirflowSkipException(problem)

    def on_kill(self) -> None:
        self._killed = True
        if self._interrupt is not None:
            self._interrupt.stop()


class BaseCampaignOperator(BaseMailOperator):
    """Has the arguments of a campaign (specification, ``/v5/campaign/mail/sends``), named as in ``CreateCampaign``."""

    template_fields_renderers = {"content": "html"}  # noqa: RUF012 - Airflow's own attribute
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
    send_list_names: Any
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
        from airflow_provider_mail.api._core.fields import MAX_MAIL_NAME_BYTES
        from airflow_provider_mail.api.campaigns import CreateCampaign
        from airflow_provider_mail.api.flows.audience import whose_people

        if unknown := sorted(set(self.ignore_differences) - CreateCampaign.model_fields.keys()):
            raise AirflowFailException(f"ignore_differences: there is no field {', '.join(unknown)}")
        fields: dict[str, Any] = dict(self.lists())
        if self.mail_name is None:
            # An audience may have other lists when its import is cleared, and another position in a mapped list.
            lists_key = str([sorted(whose_people(names or ())) for names in fields.values()])
            item = hashlib.sha256(lists_key.encode()).hexdigest()[:12]
            fields["mail_name"] = task_instance_name(context, MAX_MAIL_NAME_BYTES, item)
        return self.build_request(CreateCampaign, **fields)

    def lists(self) -> dict[str, list[str] | None]:
        """Return the lists of the campaign by field, those of the audience included."""
        lists = {
            name: list_names(name, unwrap(getattr(self, name))) for name in ("send_list_names", "repel_list_names")
        }
        if unwrap(self.audience) is not None:
            results = self._audience_results()
            check_alone(results, lists["send_list_names"] or ())
            for name, names in audience_lists(results).items():
                lists[name] = [*names, *(lists[name] or ())] or None
        return lists

    def check_lists(self, client: Client) -> None:
        """Check that the lists have the people whom the import returned, and nobody else."""
        if problem := self.list_problem(client):
            raise AirflowFailException(f"{problem}. Nothing was sent")

    def list_problem(self, client: Client) -> str:
        """Return which list was changed after the import, or is named though it is an audience's; or empty text."""
        from airflow_provider_mail._config import name_prefix
        from airflow_provider_mail.api.flows.audience import check_lists, named_audiences

        if self.is_audience_in_sandbox() and not (self.sandbox_mode or self.hook.config.sandbox):
            return (
                "audience: the import ran in sandbox mode, which changes nothing: its people are on no list. Import "
                "them without it"
            )
        totals: dict[str, int] = {}
        versions: dict[str, str] = {}
        for result in self._audience_results():
            totals.update(result.get("totals") or {})
            versions.update(result.get("versions") or {})
        if (totals or versions) and (problem := check_lists(client, totals, versions)):
            return (
                f"audience: {problem}. It was changed after the import: its people are not those of this run. Clear "
                "the import, then this task"
            )
        arguments = ("send_list_names", "repel_list_names")
        lists = {name: list_names(name, unwrap(getattr(self, name))) or () for name in arguments}
        return named_audiences(client, lists, prefix=name_prefix())

    def _audience_results(self) -> Sequence[Mapping[str, Any]]:
        audience = unwrap(self.audience)
        return [audience] if isinstance(audience, Mapping) else [*(audience or ())]

    def is_audience_in_sandbox(self) -> bool:
        """Return whether an import of the audience ran in sandbox mode, which makes no list."""
        return any(result.get("sandbox") for result in self._audience_results())

    def not_older_than(self, context: Context) -> datetime | None:
        """Return the earliest send time of a campaign that may be this run's own; ``None`` if it may adopt any."""
        # The default name contains the run's id.
        return None if self.adopt_older or self.mail_name is None else run_began(context)


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


def check_alone(results: Sequence[Mapping[str, Any]], further_lists: Collection[str]) -> None:
    """Check that nobody is on a list of a campaign that excludes them as having left another audience."""
    from airflow_provider_mail.api.flows.audience import AudienceList

    names = [*further_lists, *(name for result in results for name in result.get("send_list_names") or ())]
    owners = {name if (audience := AudienceList.parse(name)) is None else audience.owner for name in names}
    keeps_state = any("size" in result and "totals" in result for result in results)
    if keeps_state and len(owners) > 1:
        raise MailValidationError(
            "audience: who left an exact audience with changes_only is excluded from the whole campaign, also if "
            "another of its lists has them: create a campaign for each, or import all by one query"
        )


def audience_lists(results: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the lists of an audience, the results of imports, for the fields of a campaign.

    :raises MailValidationError: there is none, or an import was a dry run.
    """
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


class BaseNamedOperator(BaseMailOperator):
    """Create or remove a resource. Returns the arguments that identify it, whether that was done, and ``sandbox``."""

    thing: ClassVar[str]
    """The kind of resource, for the log."""

    operation: ClassVar[str]
    """The request, by its name in ``airflow_provider_mail.api``."""

    identified_by: ClassVar[tuple[str, ...]]
    """The arguments that the result and the log show; empty if the name is a person's address."""

    done: ClassVar[str]
    """The participle for the log, such as ``deleted``; also the key of the result that shows whether it was done."""

    def operation_request(self) -> MailRequest[Any]:
        from airflow_provider_mail import api

        request: MailRequest[Any] = self.build_request(getattr(api, self.operation))
        return request

    @abstractmethod
    def change(self, client: Client) -> bool:
        """Create or remove the resource; return whether there was something to do."""

    def execute(self, context: Context) -> dict[str, Any]:
        with self.mail_errors():
            changed = self.change(self.hook.get_conn())
            sandbox = self.sandbox_mode or self.hook.config.sandbox
        identity = {name: str(getattr(self, name)) for name in self.identified_by}
        name_text = " ".join([self.thing, *map(repr, identity.values())])
        if not changed:
            reason = f"{name_text} exists" if self.done == "created" else f"there is no {name_text} to be {self.done}"
            self.log.info("Nothing to do: %s.", reason)
        elif sandbox:
            self.log.info("Sandbox: %s would be %s; nothing was changed.", name_text, self.done)
        else:
            self.log.info("%s was %s.", name_text.capitalize(), self.done)
        return {**identity, self.done: changed and not sandbox, "sandbox": sandbox}


class BaseCreateOperator(BaseNamedOperator):
    """Create the resource, unless an equal one exists; a different one of that name is an error."""

    done = "created"

    def change(self, client: Client) -> bool:
        from airflow_provider_mail.api.flows.create_once import create

        return create(client, self.operation_request())


class BaseDeleteOperator(BaseNamedOperator):
    """Delete the resource permanently, if it exists."""

    done = "deleted"
    ignore_if_missing: bool

    def change(self, client: Client) -> bool:
        from airflow_provider_mail.api.flows.create_once import delete

        return delete(client, self.operation_request(), missing_ok=self.ignore_if_missing)
