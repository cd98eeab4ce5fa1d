"""The plan of a mass mail in stages: made before the first mail, from what the service shows.

Whom a stage reached is what its campaign shows (``rcptListNames``). A list's name shows the run and the division that
it belongs to, so a group of tasks that was cleared, with other arguments, names or another source, finds whom the
stages before have reached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from logging import getLogger
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._task.mixin import AirflowErrors
from airflow_provider_mail._task.state import task_state
from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api.campaigns import GetCampaigns, MailStatus, name_key
from airflow_provider_mail.api.contacts import GetListContacts
from airflow_provider_mail.api.errors import MailRejectedError
from airflow_provider_mail.api.flows.audience import AudienceList
from airflow_provider_mail.hooks.mail import MailHook
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api.campaigns import Campaign

log = getLogger(__name__)

PLAN_KEY = "airflow_provider_mail.staged_plan"
"""The key of the plan in the task state store (Airflow 3.3)."""

LISTS = ("send_list_names", "repel_list_names")

COUNTS = ("accepted", "rejected", "suppressed")


def count_rows(results: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Add up the rows of all stages; fail if a row is in none, or in two: the source may change while it is read.

    :return: the number of rows that the source has, and how many of them were accepted, rejected and suppressed.
    :raises AirflowFailException: with the numbers, if the imports did not read the same rows.
    """
    results = list(results)
    read = [result["read"] for result in results]
    counts = {name: sum(result.get(name, 0) for result in results) for name in COUNTS}
    if len(set(read)) > 1 or sum(counts.values()) != read[0]:
        raise AirflowFailException(
            f"the imports of the stages read {', '.join(map(str, read))} rows, of which {counts['accepted']} were "
            f"accepted, {counts['rejected']} rejected and {counts['suppressed']} left out in all stages together. The "
            "source changed while it was read, so somebody may be left out. Nobody was mailed: clear the imports"
        )
    return {"read": read[0], **counts}


class StagedPlan:
    """The stages of one run: their imports, and the campaigns that exist.

    :param results: of the imports, by stage.
    :param mail_names: the name of the campaign of each stage.
    :param division: what divides the people, for the record: ``seed`` and ``shares``.
    :param mail_others: whether a plan may replace the one by which a stage was sent.
    :param other_tasks: the owners of the lists of all other tasks in the DAG, which may have stages of their own.
    """

    def __init__(
        self,
        mail_conn_id: str,
        results: Mapping[str, Mapping[str, Any]],
        mail_names: Mapping[str, str],
        division: Mapping[str, Any],
        *,
        mail_others: bool,
        other_tasks: Collection[str] = (),
    ) -> None:
        if missing := [stage for stage, result in results.items() if not result]:
            raise AirflowFailException(
                f"audience: the import of stage {', '.join(missing)} has no result: it was skipped, or its XCom was "
                "removed. Nobody else was mailed: clear the imports"
            )
        self._conn_id = mail_conn_id
        self._hook = MailHook(mail_conn_id)
        self._results = results
        self._mail_names = mail_names
        self._division = division
        self._mail_others = mail_others
        lists = _parse(self._new_lists())
        self._runs = {name.run for name in lists}
        self._other_tasks = set(other_tasks) - {name.owner for name in lists}

    def make(self, context: Context) -> dict[str, Any]:
        """Return the lists of each stage and the counts of rows; store what the next clear must know.

        :raises AirflowFailException: a stage was sent by another plan, or the lists that it reached are not known.
        """
        counts = count_rows(self._results.values())
        if self._is_sandbox:
            return {**counts, "stages": dict(self._results)}
        with AirflowErrors(self._conn_id):
            return {**counts, "stages": self._make(counts, context)}

    @property
    def _is_sandbox(self) -> bool:
        return any(result.get("sandbox") for result in self._results.values())

    def _make(self, counts: Mapping[str, int], context: Context) -> dict[str, dict[str, Any]]:
        state = task_state(context, PLAN_KEY)
        campaigns = self._campaigns()
        self._check_plan(campaigns, state.read())
        reached = {name: list(campaign.rcpt_list_names or ()) for name, campaign in campaigns.items()}
        self._check_lists(reached)
        stages = self._stages(campaigns, reached)
        lists = {name: {key: stage[key] for key in LISTS} for name, stage in stages.items()}
        state.write({**self._division, "counts": counts, "stages": lists})
        return stages

    def _campaigns(self) -> dict[str, Campaign]:
        """Return the campaigns of this run by the names of its stages, or else their own: those sent to its lists.

        The names of stages and tasks may have changed since, so all campaigns are read. One of a stage's name to other
        lists is another's: creating the stage's own fails.
        """
        names = {name_key(mail_name): mail_name for mail_name in self._mail_names.values()}
        campaigns = {}
        for page in self._hook.get_conn().pages(GetCampaigns(page_size=100)):
            for campaign in page:
                mail_name = names.get(name_key(campaign.mail_name), campaign.mail_name)
                if campaign.rcpt_list_names is None and mail_name in self._mail_names.values():
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

    def _new_lists(self, stages: Iterable[str] | None = None) -> list[str]:
        chosen = self._results if stages is None else stages
        return [name for stage in chosen for name in self._results[stage][LISTS[0]]]

    def _check_plan(self, campaigns: Mapping[str, Campaign], stored: Mapping[str, Any] | None) -> None:
        """Reject another plan than the one by which a stage was sent."""
        plans = {name.plan for name in _parse(self._new_lists())}
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
            f"{', '.join(map(repr, other))}: sent by another plan of this run: mail_name, stages or seed differ, so "
            f"people would be mailed twice or left out. Nobody else was mailed. Either restore the plan{before} and "
            "clear it; or set on_changed_plan='mail_others', which mails everybody whom no stage has reached yet"
        )

    def _check_lists(self, reached: Mapping[str, Sequence[str]]) -> None:
        for mail_name, names in reached.items():
            for name in names:
                if self._size(name) is None:
                    raise AirflowFailException(
                        f"campaign {mail_name!r} was sent to list {name!r}, which the service no longer has, so "
                        "it is not known whom it reached. Nobody else was mailed"
                    )

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

        A stage is sent without the people of all campaigns that exist, and of the stages before it. Where an existing
        campaign went to lists of an earlier import, the last stage is also sent to the new ones: somebody may have come
        since.
        """
        gone_to = [name for names in reached.values() for name in names]
        left = [stage for stage, mail_name in self._mail_names.items() if mail_name not in campaigns]
        stages: dict[str, dict[str, Any]] = {}
        for stage, mail_name in self._mail_names.items():
            result = self._results[stage]
            if (campaign := campaigns.get(mail_name)) is not None:
                lists = dict(zip(LISTS, (reached[mail_name], list(campaign.repel_list_names or ())), strict=True))
            else:
                send = list(result[LISTS[0]])
                if stage == left[-1]:
                    sent = [other for other in self._mail_names if other not in left]
                    send += [name for name in self._new_lists(sent) if name not in gone_to]
                before = [name for other in left[: left.index(stage)] for name in stages[other][LISTS[0]]]
                repelled = dict.fromkeys([*gone_to, *before, *result.get(LISTS[1], ())])
                lists = dict(zip(LISTS, (send, [name for name in repelled if name not in send]), strict=True))
            stages[stage] = {**result, **lists}
        return stages

    def check_sent(self) -> dict[str, Any]:
        """Compare whom the campaigns were sent to with the people of the source.

        :return: the counts of rows, and the number of mails that were sent.
        :raises AirflowFailException: somebody got none, or a campaign is gone.
        """
        counts = count_rows(self._results.values())
        if self._is_sandbox:
            return {**counts, "mailed": 0}
        with AirflowErrors(self._conn_id):
            return {**counts, "mailed": self._mailed(counts["accepted"])}

    def _mailed(self, accepted: int) -> int:
        campaigns = self._campaigns()
        if gone := [name for name in self._mail_names.values() if name not in campaigns]:
            raise AirflowFailException(f"campaign {', '.join(map(repr, gone))} does not exist: who got it is not known")
        found = campaigns.values()
        if unsent := [campaign.mail_name for campaign in found if campaign.mail_status != MailStatus.COMPLETE]:
            raise AirflowFailException(
                f"campaign {', '.join(map(repr, unsent))} was not sent (mailStatus is not 2), so who got it is not "
                "known: look at the service. Mark this task as success when that is settled"
            )
        lists = {name: list(campaign.rcpt_list_names or ()) for name, campaign in campaigns.items()}
        reached = list(dict.fromkeys(name for names in lists.values() for name in names))
        missing = [name for name in self._new_lists() if name not in reached]
        if missing:
            self._check_lists(lists)
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

    def _people(self, list_names: Sequence[str]) -> set[int]:
        """Return the people on some lists, as 64-bit digests: a list may have millions."""
        return {
            int.from_bytes(sha256(address_key(key).encode()).digest()[:8])
            for name in list_names
            for contact in self._hook.iter_contacts(name)
            if (key := contact.email or contact.phone_number)
        }


def _parse(list_names: Iterable[str] | None) -> list[AudienceList]:
    """Return the lists of audiences among some lists."""
    return [name for name in map(AudienceList.parse, list_names or ()) if name is not None]
