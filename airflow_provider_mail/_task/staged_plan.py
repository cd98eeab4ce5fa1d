"""The plan of a mass mail in stages: made before the first mail, from what the service shows.

Whom a stage reached is what its campaign shows (``rcptListNames``). A list's name shows the run and the division that
it belongs to, so a group of tasks that was cleared, with other arguments, names or another source, finds whom the
stages before have reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from logging import getLogger
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from airflow_provider_mail._task.mixin import AirflowErrors
from airflow_provider_mail._task.state import TaskState, task_state
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.campaigns import GetCampaigns, MailStatus, name_key
from airflow_provider_mail.api.contacts import GetListContacts
from airflow_provider_mail.api.errors import MailRejectedError
from airflow_provider_mail.api.flows.audience import AudienceList
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import AirflowFailException, AirflowSkipException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.campaigns import Campaign

log = getLogger(__name__)

PLAN_KEY = "airflow_provider_mail.staged_plan"
"""The key of the plan in the task state store (Airflow 3.3)."""

MOMENT = "%Y-%m-%dT%H:%M:%SZ"

LISTS = ("send_list_names", "repel_list_names")

COUNTS = ("read", "accepted", "rejected", "suppressed", "opted_out", "without_address")


class StagedPlan:
    """The stages of one run: the import of their people, and the campaigns that exist.

    :param mail_name: the name of the campaign; that of a stage has its name behind it.
    :param division: what divides the people, for the record.
    :param mail_others: whether a plan may replace the one by which a stage was sent.
    :param other_tasks: the owners of the lists of all other tasks in the DAG, which may have stages of their own.
    """

    def __init__(
        self,
        mail_conn_id: str,
        result: Mapping[str, Any],
        mail_name: str,
        division: Mapping[str, Any],
        *,
        mail_others: bool = False,
        send_ids: Mapping[str, str] | None = None,
        other_tasks: Collection[str] = (),
    ) -> None:
        if not result or "parts" not in result:
            raise AirflowFailException(
                "import_task: it was skipped, or its result was removed. Nobody else was mailed: clear it"
            )
        self._conn_id = mail_conn_id
        self._hook = MailHook(mail_conn_id)
        self._counts = {name: result.get(name, 0) for name in COUNTS}
        self._totals = result.get("totals") or {}
        self._versions = result.get("versions") or {}
        self._is_sandbox = bool(result.get("sandbox"))
        self._lists: dict[str, str] = {part["name"]: part["list"] for part in result["parts"]}
        """The list of the import by part."""
        self._sizes = {part["list"]: part["people"] for part in result["parts"]}
        self._mail_name = mail_name
        self._mail_names = {name: f"{mail_name} {name}" for name in self._lists}
        self._division = division
        self._mail_others = mail_others
        self._send_ids = send_ids or {}
        self._at_most = result.get("memory_at_most")
        self._memory_tasks = {part["list"]: part.get("memory_task") for part in result["parts"]}
        lists = _parse(self._lists.values())
        self._runs = {name.run for name in lists}
        self._other_tasks = set(other_tasks) - {name.owner for name in lists}

    def make(self, context: Context) -> Any:
        """Return the lists of each stage and the counts of rows; store what the next clear must know.

        :raises AirflowFailException: a stage was sent by another plan, or the lists that it reached are not known.
        """
        with AirflowErrors(self._conn_id):
            return {**self._counts, "stages": self._make(task_state(context, PLAN_KEY))}

    def _make(self, state: TaskState) -> Any:
        campaigns = self._campaigns()
        self._check_plan(campaigns, state.read())
        reached = self._reached(campaigns)
        stages = self._stages(campaigns, reached)
        if not self._is_sandbox:
            state.write({**self._division, "counts": self._counts})
        return stages

    def _campaigns(self) -> dict[str, Campaign]:
        """Return the campaigns of this run by the names of its stages, or else their own: those sent to its lists.

        The names of stages and tasks may have changed since, so all campaigns are read. One of a stage's name to other
        lists is another's: creating the stage's own fails.
        """
        names = {name_key(mail_name): mail_name for mail_name in self._expected()}
        campaigns = {}
        for page in self._hook.get_conn().pages(GetCampaigns(page_size=100)):
            for campaign in page:
                mail_name = names.get(name_key(campaign.mail_name), campaign.mail_name)
                may_be_own = name_key(campaign.mail_name).startswith(name_key(self._mail_name))
                if campaign.rcpt_list_names is None and may_be_own:
                    raise AirflowFailException(
                        f"campaign {campaign.mail_name!r} exists, and the service does not show to which lists "
                        "(rcptListNames), so it is not known whom it reached. Nobody else was mailed: mark the stages "
                        "that were sent as success"
                    )
                if any(map(self._is_own, _parse(campaign.rcpt_list_names))):
                    campaigns[mail_name] = campaign
        return campaigns

    def _is_own(self, name: AudienceList) -> bool:
        """Return whether a list has people of a stage of this run, as it is now or was before it was cleared."""
        return name.plan is not None and name.run in self._runs and name.owner not in self._other_tasks

    def _check_plan(self, campaigns: Mapping[str, Campaign], stored: Mapping[str, Any] | None) -> None:
        """Reject another plan than the one by which a stage was sent."""
        plans = {name.plan for name in _parse(self._lists.values())}
        other = [
            mail_name
            for mail_name, campaign in campaigns.items()
            if mail_name not in self._mail_names.values()
            or {name.plan for name in _parse(campaign.rcpt_list_names)} - plans
        ]
        if not other:
            return
        if self._mail_others:
            log.warning("%s: sent by another plan. Whom they reached is left out now.", ", ".join(map(repr, other)))
            return
        before = f" ({', '.join(f'{key}={stored.get(key)!r}' for key in self._division)})" if stored else ""
        raise AirflowFailException(
            f"{', '.join(map(repr, other))}: sent by another plan of this run: mail_name, "
            f"{' or '.join(self._division)} differ, so people would be mailed twice or left out. Nobody else was "
            f"mailed. Either restore the plan{before} and clear it; or set on_changed_plan='mail_others', which mails "
            "everybody whom no stage has reached yet"
        )

    def _reached(self, campaigns: Mapping[str, Campaign]) -> dict[str, list[str]]:
        """Return the lists to which each campaign was sent, which must still be there."""
        reached = {name: list(campaign.rcpt_list_names or ()) for name, campaign in campaigns.items()}
        for mail_name, names in reached.items():
            for name in names:
                if self._size(name) is None:
                    raise AirflowFailException(
                        f"campaign {mail_name!r} was sent to list {name!r}, which the service no longer has, so "
                        "it is not known whom it reached. Nobody else was mailed"
                    )
        return reached

    def _size(self, list_name: str) -> int | None:
        """Return the number of contacts in a list; ``None`` if there is no such list."""
        try:
            return self._hook.send(GetListContacts(list_name=list_name, page_size=1)).total_records or 0
        except MailRejectedError:
            return None

    def _stages(
        self, campaigns: Mapping[str, Campaign], reached: Mapping[str, Sequence[str]]
    ) -> dict[str, dict[str, Any]]:
        """Return the lists of each stage: those that its campaign shows, or those that it will be sent to.

        A stage is sent without the people of all campaigns that exist. Where an existing one went to lists of an
        earlier import, the last stage is also sent to the new ones: people may have come since.
        """
        gone_to = [name for names in reached.values() for name in names]
        left = [stage for stage, mail_name in self._mail_names.items() if mail_name not in campaigns]
        # Without people there is no campaign, so the last one with people is the last.
        last = next((stage for stage in reversed(left) if self._sizes[self._lists[stage]]), None)
        stages: dict[str, dict[str, Any]] = {}
        for stage, mail_name in self._mail_names.items():
            if (campaign := campaigns.get(mail_name)) is not None:
                send, repelled = reached[mail_name], list(campaign.repel_list_names or ())
            else:
                send = [self._lists[stage]]
                if stage == last:
                    sent = [name for other, name in self._lists.items() if other not in left]
                    send += [name for name in sent if name not in gone_to]
                repelled = [name for name in gone_to if name not in send]
            stages[stage] = self._audience(send, repelled) | {
                "is_empty": campaign is None and (last is None or left.index(stage) > left.index(last)),
                "a_day_after": list(self._mail_names.values())[: len(stages)] if "ramp" in self._division else [],
            }
        return stages

    def _audience(self, send: Sequence[str], repelled: Sequence[str]) -> dict[str, Any]:
        """Return whom a campaign is sent to, as the result of an import."""
        known = {"totals": self._totals, "versions": self._versions}
        checked = {key: {name: values[name] for name in send if name in values} for key, values in known.items()}
        audience = {LISTS[0]: send, LISTS[1]: repelled, **checked, "sandbox": self._is_sandbox}
        tasks = [task for name in send if (task := self._memory_tasks.get(name))]
        return audience | {"memory_tasks": tasks, "memory_at_most": self._at_most}

    def check_sent(self, context: Context) -> dict[str, Any]:
        """Compare whom the campaigns were sent to with the people of the source.

        :return: the counts of rows, and the number of mails that were sent.
        :raises AirflowFailException: somebody got none, or a campaign is gone.
        """
        if self._is_sandbox:
            return {**self._counts, "mailed": 0}
        with AirflowErrors(self._conn_id):
            return {**self._counts, "mailed": self._mailed(self._counts["accepted"], context)}

    def _mailed(self, accepted: int, context: Context) -> int:
        campaigns = self._campaigns()
        if gone := [name for name, is_needed in self._expected().items() if is_needed and name not in campaigns]:
            ti = context["ti"]
            ids = {stage: task_id for stage, task_id in self._send_ids.items() if self._mail_names[stage] in gone}
            if skipped := [
                stage for stage, id_ in ids.items() if ti.xcom_pull(task_ids=id_, map_indexes=ti.map_index) is None
            ]:
                raise AirflowSkipException(f"the people of {', '.join(skipped)} were not mailed: skipped")
            raise AirflowFailException(f"campaign {', '.join(map(repr, gone))} does not exist: who got it is not known")
        found = campaigns.values()
        if unsent := [campaign.mail_name for campaign in found if campaign.mail_status != MailStatus.COMPLETE]:
            raise AirflowFailException(
                f"campaign {', '.join(map(repr, unsent))} was not sent (mailStatus is not 2), so who got it is not "
                "known: look at the service. Mark this task as success when that is settled"
            )
        reached = list(dict.fromkeys(name for campaign in found for name in campaign.rcpt_list_names or ()))
        missing = [name for name in self._lists.values() if name not in reached]
        if missing:
            self._reached(campaigns)
        left = self._people(missing) - self._people(reached) if missing else set()
        mailed = sum((campaign.mail_stats and campaign.mail_stats.sent_count) or 0 for campaign in found)
        log.info("%s people of the source, %s mails sent, %s not mailed.", accepted, mailed, len(left))
        if left:
            raise AirflowFailException(
                f"{len(left):,} of {accepted:,} people of the source were not mailed: they came after the last "
                "stage was sent. Mark this task as success to leave them out, or send them a campaign of their own: "
                f"send_list_names={missing}, repel_list_names={reached}"
            )
        return mailed

    def _expected(self) -> dict[str, bool]:
        """Return the names of the campaigns, and whether each has people."""
        return {self._mail_names[part]: self._sizes[name] > 0 for part, name in self._lists.items()}

    def _people(self, list_names: Sequence[str]) -> set[int]:
        """Return the people on some lists, as 64-bit digests: a list may have millions."""
        return {
            int.from_bytes(sha256(address_key(key).encode()).digest()[:8])
            for name in list_names
            for contact in self._hook.iter_contacts(name)
            if (key := contact.email or contact.phone_number)
        }


class LocalTimePlan(StagedPlan):
    """The campaigns of one run by their send times: one for all zones in which the local time is the same moment.

    A campaign is named after its moment, and each is sent without the people whom those that exist have reached.

    :param send_time: the local time, ``HH:MM``.
    :param send_day: the local day, ``YYYY-MM-DD``.
    :param campaigns: what the plan has returned. Default: it is not made yet.
    """

    def __init__(self, send_time: str, send_day: str, campaigns: Sequence[Any] = (), **arguments: Any) -> None:
        super().__init__(**arguments)
        self._time = time.fromisoformat(send_time)
        try:
            self._day = date.fromisoformat(send_day)
        except ValueError:
            raise AirflowFailException(f"send_day: {send_day!r} is not a day such as '2026-12-24'") from None
        self._planned = campaigns

    def make(self, context: Context) -> list[dict[str, Any]]:
        """Return the arguments of each campaign, each at its place of a plan before: a clear may add campaigns."""
        with AirflowErrors(self._conn_id):
            state = task_state(context, PLAN_KEY)
            campaigns = self._campaigns()
            clock = self._hook.get_conn().service_clock
            if clock.asked_at is None:
                raise AirflowFailException(
                    "send_time: the responses of the service have no Date header, so its time is unknown. Nothing was "
                    "sent"
                )
            reached = self._reached(campaigns)
            planned = {
                name: (campaign.send_by_date_time, self._audience(reached[name], list(campaign.repel_list_names or ())))
                for name, campaign in campaigns.items()
            }
            gone_to = [name for names in reached.values() for name in names]
            moments: dict[datetime, list[str]] = {}
            others = self._with_others(gone_to)
            for zone, name in self._lists.items():
                if name in others:
                    moments.setdefault(self._moment(zone, clock.latest()), []).append(name)
            for moment in sorted(moments):
                planned[f"{self._mail_name} {moment:{MOMENT}}"] = moment, self._audience(moments[moment], gone_to)
            before = (state.read() or {}).get("mail_names", [])
            new = [name for name in planned if name not in before]
            names = [name if name in planned else new.pop(0) if new else "" for name in before] + new
            if not self._is_sandbox:
                state.write({**self._division, "counts": self._counts, "mail_names": names})
            return [
                {"mail_name": name, "send_date": sent and f"{sent:{MOMENT}}", "audience": audience}
                for name in names if name for sent, audience in [planned[name]]
            ]  # fmt: skip

    def _with_others(self, gone_to: Sequence[str]) -> list[str]:
        """Return the lists that have people whom no campaign has reached."""
        new = [name for name in self._lists.values() if self._sizes[name] and name not in gone_to]
        if not gone_to:
            return new
        reached = self._people(gone_to)
        return [name for name in new if self._people([name]) - reached]

    def _moment(self, zone: str, now: datetime) -> datetime:
        """Return the moment of the local time on the day, or on the next one on which it is ahead."""
        day = self._day
        while (moment := datetime.combine(day, self._time, ZoneInfo(zone)).astimezone(UTC)) <= now:
            day = max(day + timedelta(days=1), now.astimezone(ZoneInfo(zone)).date())
        return moment

    def _expected(self) -> dict[str, bool]:
        return {campaign["mail_name"]: True for campaign in self._planned}


def _parse(list_names: Iterable[str] | None) -> list[AudienceList]:
    """Return the lists of audiences among some lists."""
    return [name for name in map(AudienceList.parse, list_names or ()) if name is not None]
