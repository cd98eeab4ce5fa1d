"""The contact lists of audiences: their names, and the deletion of those that nobody needs any more.

The specification has no operation that takes a contact off a list. So an audience gets new lists when a person must no
longer be on one, and the lists of earlier runs are deleted.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from airflow_provider_mail.api._core.fields import address_key
from airflow_provider_mail.api._core.pagination import all_records
from airflow_provider_mail.api._core.requests import Client
from airflow_provider_mail.api.contacts import GetListContacts
from airflow_provider_mail.api.errors import MailError, MailRejectedError
from airflow_provider_mail.api.flows.create_once import delete
from airflow_provider_mail.api.lists import ContactList, DeleteList, GetLists, find_list

MAX_LIST_NAME_BYTES = 200
"""The specification shows no limit for the name of a list; this is that of a campaign."""

MIN_AGE_SECONDS = 3600.0
"""Lists that were begun less than this ago are never deleted: the campaign that needs them may not exist yet."""

SETTLE_SECONDS = (0.5, 1.5, 3, 5, 10, 15, 25)
"""Pauses between looks at the totals of lists."""

MADE_SECONDS = 5.0
"""Up to so many seconds later, the date of a change may be that of the creation, too."""

MAX_READ = 10_000
"""The most people whose list is read where its date may not change with them: ten requests."""

Role: TypeAlias = Literal["sent", "excluded"]

_PEOPLE = ", people "
_TIME = "%Y%m%dT%H%M%S%fZ"
_NAME = re.compile(
    r"(?P<title>.+?) (?P<role>excluded )?(?P<try>(?P<time>\d{8}T\d{12}Z)-(?P<store>[0-9a-f]{8})) "
    r"(?P<owner>[0-9a-f]{8})-(?P<run>[0-9a-f]{8})"
    r"(?:-(?P<part>\d+))?(?:~(?P<plan>[0-9a-f]{8}))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AudienceList:
    """The name of a list that one try of a task fills, and no other.

    :param title: what people read: the prefix of the deployment and the ``list_name`` of the task, perhaps cut.
    :param role: whether campaigns are sent to it, or exclude it.
    :param begun_at: when the try began to fill it, by the worker's clock.
    :param owner: :func:`digest` of the task. Not of the ``list_name``, which may be another one in each run.
    :param store: what tells the lists of this Airflow from those of others with the same task, which are left alone.
    :param run: digest of the DAG and the run.
    :param part: the index of a mapped task. Default: none.
    :param plan: digest of the plan by which people are divided. Default: they are not.
    """

    title: str
    role: Role = "sent"
    begun_at: datetime
    owner: str
    store: str
    run: str
    part: int | None = None
    plan: str | None = None

    @classmethod
    def of(
        cls,
        list_name: str,
        *,
        owner: str,
        store: str,
        run: str,
        begun_at: datetime,
        part: int | None = None,
        plan: str | None = None,
        prefix: str = "",
        of_part: str = "",
    ) -> AudienceList:
        """Name the list of a try.

        :param of_part: the name of the part of the people that is on it. Default: all are.
        :param prefix: distinguishes the deployments that use one account; with its separator.
        """
        unnamed = cls(
            title="", role="excluded", begun_at=begun_at, owner=owner, store=store, run=run, part=part, plan=plan
        )
        part_name = of_part and f" {of_part}"
        most_bytes = MAX_LIST_NAME_BYTES - len(f"{unnamed}{part_name}".encode())
        title = f"{prefix}{list_name}".encode()[:most_bytes].decode(errors="ignore").rstrip() + part_name
        return replace(unnamed, title=title, role="sent")

    @classmethod
    def parse(cls, name: str) -> AudienceList | None:
        """Read the name of a list; ``None`` for the name of another one."""
        if not (match := _NAME.fullmatch(name)):
            return None
        try:
            begun_at = datetime.strptime(match["time"], _TIME).replace(tzinfo=UTC)
        except ValueError:
            return None
        part = None if match["part"] is None else int(match["part"])
        role: Role = "excluded" if match["role"] else "sent"
        return cls(
            title=match["title"], role=role, begun_at=begun_at, owner=match["owner"], store=match["store"],
            run=match["run"], part=part, plan=match["plan"],
        )  # fmt: skip

    def is_of_audience(self, other: AudienceList) -> bool:
        """Return whether both lists are of one audience, of any run."""
        return all(getattr(self, name) == getattr(other, name) for name in ("owner", "store", "part", "plan"))

    def is_titled(self, title: str) -> bool:
        """Return whether a list with this title gets this name; one that is too long is cut."""
        cut = AudienceList.of(
            title, owner=self.owner, store=self.store, run=self.run, begun_at=self.begun_at, part=self.part,
            plan=self.plan,
        )  # fmt: skip
        return self.title == cut.title

    def __str__(self) -> str:
        role = "excluded " if self.role == "excluded" else ""
        part = "" if self.part is None else f"-{self.part}"
        plan = "" if self.plan is None else f"~{self.plan}"
        time = f"{self.begun_at.astimezone(UTC):{_TIME}}"
        return f"{self.title} {role}{time}-{self.store} {self.owner}-{self.run}{part}{plan}"


def without_time(list_name: str) -> str:
    """Return the part of a list's name that all tries of one run share; the name of another list is unchanged."""
    match = _NAME.fullmatch(list_name)
    return list_name if match is None else list_name[: match.start("try")] + list_name[match.end("try") :]


def whose_people(list_names: Iterable[str]) -> frozenset[str]:
    """Return what names the people of the lists of a campaign: of an audience the same in every run.

    Each run may have other lists, also exclusion lists.
    """
    named = {name: AudienceList.parse(name) for name in list_names}
    return frozenset(
        name if made is None else f"{made.title} {made.owner} {made.part}"
        for name, made in named.items()
        if made is None or made.role == "sent"
    )


def delete_old_lists(
    client: Client, current: AudienceList, *, needed: Collection[str], keep: int, own_part: bool = False
) -> tuple[list[str], list[AudienceList]]:
    """Delete the lists of a task's earlier runs and tries; return their names, and the lists of other deployments.

    A list stays if it is needed, young, one of those of the latest runs, or named by a campaign that is not finished.

    :param needed: names of lists that campaigns are still to be sent to.
    :param keep: the number of runs whose lists stay, this one included; at least 1.
    :param own_part: whether the lists of other mapped tasks stay, each of which uses its own for many runs.
    """
    of_task = [name for name in _audience_lists(client, current.owner) if name.owner == current.owner]
    others = sorted((name for name in of_task if name.store != current.store), key=str)
    lists = [name for name in of_task if name.store == current.store and not (own_part and name.part != current.part)]
    old = [
        name
        for name in lists
        if str(name) not in needed
        # Campaigns of stages were sent to these: whom they reached must stay known until the run is over.
        and not (name.plan and name.run == current.run)
        and _is_outdated(name, lists, keep)
        and (current.begun_at - name.begun_at).total_seconds() >= MIN_AGE_SECONDS
    ]
    return [name for name in unused(client, old) if delete(client, DeleteList(list_name=name))], others


def lists_of(client: Client, store: str) -> list[str]:
    """Return the lists of a deployment that no campaign needs."""
    return unused(client, (name for name in _audience_lists(client, store) if name.store == store))


def unused(client: Client, lists: Iterable[AudienceList]) -> list[str]:
    """Return the names of lists that no campaign needs."""
    names = sorted(map(str, lists))
    used = lists_in_use(client) if names else ()
    return [name for name in names if name not in used]


def _is_outdated(name: AudienceList, lists: Collection[AudienceList], keep: int) -> bool:
    """Return whether a later try replaced a list, or enough later runs have lists of their own."""
    later = [other for other in lists if other.begun_at > name.begun_at and other.role == name.role]
    replaced = any((other.run, other.part) == (name.run, name.part) for other in later)
    return replaced or len({other.run for other in later} - {name.run}) >= keep


def lists_in_use(client: Client, *, only_scheduled: bool = False) -> set[str]:
    """Return the names of the lists that campaigns are sent to or exclude, but for those that are surely finished.

    All campaigns are read: the specification does not show the status of a scheduled one, which may be any.

    :param only_scheduled: only of those that are still to be sent, or are being sent, and of drafts.
    """
    # Every import imports this module, and building the models of campaigns takes as long as 15,000 of its rows.
    from airflow_provider_mail.api.campaigns import FINAL, GetCampaigns, MailStatus

    names = set[str]()
    for campaign in all_records(client, GetCampaigns(page_size=100)):
        # The specification does not show when the people of one that is being sent are chosen.
        is_unsent = campaign.mail_status in (MailStatus.DRAFT, MailStatus.SENDING)
        is_used = is_unsent or campaign.send_time_is_ahead(client.service_clock.latest())
        if not only_scheduled and not is_used:
            is_final = campaign.mail_status in FINAL
            is_used = not is_final or campaign.send_by_date_time is None
        if is_used:
            names.update(campaign.rcpt_list_names or (), campaign.repel_list_names or ())
    return names


def list_totals(client: Client, names: Collection[str]) -> dict[str, int | None]:
    """Return the number of contacts in each list; ``None`` if the service does not tell, or there is no such list.

    :raises MailError: a request fails for another reason.
    """
    return _totals_and_missing(client, names)[0]


def _totals_and_missing(client: Client, names: Collection[str]) -> tuple[dict[str, int | None], set[str]]:
    """Return the number of contacts in each list, and which lists are not there."""
    names = list(names)
    totals, missing = dict[str, int | None](), set[str]()
    answers = client.send_all([GetListContacts(list_name=name, page_size=1) for name in names])
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, MailError) and not isinstance(answer, MailRejectedError):
            raise answer
        totals[name] = None if isinstance(answer, MailError) else answer.total_records
        if isinstance(answer, MailError):
            missing.add(name)
    return totals, missing


def settled_totals(client: Client, expected: Mapping[str, int]) -> dict[str, int | None]:
    """Return the number of contacts in each list, when it is the expected one, or after a minute.

    The specification does not show whether an import has happened when it is answered, or every server knows of it.
    """
    totals, missing = _totals_and_missing(client, expected)
    for seconds in SETTLE_SECONDS:
        if not missing and all(totals[name] in (None, count) for name, count in expected.items()):
            break
        client.pause(seconds)
        totals, missing = _totals_and_missing(client, expected)
    return totals


def strangers(client: Client, people: Mapping[str, Collection[bytes]]) -> str:
    """Return which lists have people whom only others can have added; empty if none has.

    :param people: the keys of those whom the audience has added, by name of the list.
    """
    found = []
    for name, known in people.items():
        addresses = (record.email for record in all_records(client, GetListContacts(list_name=name, page_size=1000)))
        if count := sum(1 for address in addresses if address and address_key(address).encode() not in known):
            found.append(f"list {name!r} has {count:,} people who are not in the audience")
    return "; ".join(found)


def check_lists(client: Client, totals: Mapping[str, int], versions: Mapping[str, str]) -> str:
    """Return how lists differ from what they were at the end of an import; empty if they do not.

    :param totals: the number of contacts by name of the list.
    :param versions: what `list_versions` said, of lists whose number may stay the same.
    """
    now = settled_totals(client, totals)
    changed = [
        f"list {name!r} had {count:,} contacts and has {'none that can be read' if now[name] is None else now[name]}"
        for name, count in totals.items()
        if now[name] != count
    ]
    versions_now = {} if changed else list_versions(client, versions)
    others = (name for name, version in versions_now.items() if not is_version(versions[name], version))
    changed += [f"list {name!r} has other people" for name in others]
    return "; ".join(changed)


def last_size(client: Client, current: AudienceList) -> int:
    """Return how many people the last list of an audience has without those who are excluded; 0 without a list.

    Of the lists of several deployments, the largest number counts: which one's state was lost is not known.
    """
    stores: dict[str, list[AudienceList]] = defaultdict(list)
    for name in _audience_lists(client, current.owner):
        if name.is_of_audience(replace(current, store=name.store)):
            stores[name.store].append(name)
    return max((_last_size(client, own) for own in stores.values()), default=0)


def _last_size(client: Client, own: Collection[AudienceList]) -> int:
    for last in sorted((name for name in own if name.role == "sent"), key=lambda name: name.begun_at, reverse=True):
        excluded = _exclusions_from(last, own)
        totals = list_totals(client, [str(last), *excluded])
        # A run without rows has made an empty list.
        if (size := (totals[str(last)] or 0) - sum(totals[name] or 0 for name in excluded)) > 0:
            return size
    return 0


def _exclusions_from(of: AudienceList, lists: Iterable[AudienceList]) -> list[str]:
    """Return the exclusion lists of a list that people are sent to, among all lists of its audience."""
    later = sorted((name for name in lists if name.begun_at >= of.begun_at), key=lambda name: name.begun_at)
    numbered: dict[str, str] = {}
    for name in later:
        if name.role == "sent" and name.begun_at > of.begun_at:
            break  # the next lists are those of this one
        if name.role == "excluded":
            # Of lists with one number, the last one counts.
            numbered[name.title.rpartition(" ")[2]] = str(name)
    return [*numbered.values()]


def named_audiences(client: Client, lists: Mapping[str, Collection[str]], prefix: str = "") -> str:
    """Return why lists are not those to send to or to exclude: an exact audience has the name; empty if none has.

    Who left such an audience is still on a list of that name, and who is new is not.

    :param lists: their names by argument.
    """
    for argument, list_name in ((argument, name) for argument, names in lists.items() for name in names):
        cure = "give the campaign audience=<the import task>.output instead"
        if argument == "repel_list_names":
            cure = "give it <the import task>.output['send_list_names'] of an import without changes_only instead"
        if (own := AudienceList.parse(list_name)) is not None:
            if argument == "repel_list_names":
                same = (name for name in _audience_lists(client, own.owner) if name.is_of_audience(own))
                if any(list_totals(client, _exclusions_from(own, same)).values()):
                    return f"{argument}: {list_name!r} has people, too, who have left that audience: {cure}"
                continue
            return f"{argument}: {list_name!r} is a list of an exact audience, which has excluded people, too: {cure}"
        titles = {f"{prefix}{list_name}"} | ({list_name} if list_name.startswith(prefix) else set())
        # A title may be cut, to no less than this.
        text = list_name.encode()[:100].decode(errors="ignore")
        made = (name for name in _audience_lists(client, text) if name.role == "sent")
        if found := next((name for name in made if any(map(name.is_titled, titles))), None):
            return (
                f"{argument}: {list_name!r} is the name of an exact audience, whose people are on list "
                f"{str(found)!r}: {cure}. If there is no such audience any more, delete that list"
            )
    return ""


def list_versions(client: Client, names: Collection[str], *, by_date: bool = True) -> dict[str, str]:
    """Return what tells each list from one that has its name later, as far as the service says; without missing ones.

    :param by_date: also from itself with other people.
    """
    owners = {name.owner for name in map(AudienceList.parse, names) if name is not None}
    found = {record.list_name: record for owner in owners for record in _lists(client, owner)}
    records = [record for name in names if (record := found.get(name) or find_list(client, name)) is not None]
    versions = {
        record.list_name: f"{record.id}, {record.create_date}, {by_date and record.modify_date}" for record in records
    }
    # The specification does not show whether the date changes with the people.
    asked = [record.list_name for record in records if by_date and not _has_changed(record)]
    for name, total in list_totals(client, asked).items():
        if total is not None and total <= MAX_READ:
            people = all_records(client, GetListContacts(list_name=name, page_size=1000))
            versions[name] += f"{_PEOPLE}{digest(str(sorted(str(person.id or person.email) for person in people)))}"
    return versions


def without_people(versions: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of lists of which people were taken."""
    return {name: version.partition(_PEOPLE)[0] for name, version in versions.items()}


def is_version(known: str, now: str | None) -> bool:
    """Return whether a list has the version that is known, which may be without its people."""
    return known == now or (now is not None and known == now.partition(_PEOPLE)[0])


def _has_changed(record: ContactList) -> bool:
    """Return whether the date of a list has changed with its people, who were added after it was made."""
    made, changed = record.create_date, record.modify_date
    return made is not None and changed is not None and (changed - made).total_seconds() > MADE_SECONDS


def _audience_lists(client: Client, text: str) -> Iterator[AudienceList]:
    """Yield the lists of audiences whose names contain a text."""
    names = (AudienceList.parse(record.list_name) for record in _lists(client, text))
    return (name for name in names if name is not None)


def _lists(client: Client, text: str) -> Iterator[ContactList]:
    return all_records(client, GetLists(search=text, page_size=100))


def digest(text: str) -> str:
    """Return what stands for a text in the names of lists."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]
