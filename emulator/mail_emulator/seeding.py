"""Add state to the service before a test."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta

from mail_emulator import campaign_life, contacts, lists, senders, templates
from mail_emulator.campaign_life import DONE, FAILED, SENDING, expected_reactions
from mail_emulator.campaigns import STATES
from mail_emulator.clock import to_ms
from mail_emulator.responses import encode_json
from mail_emulator.rpc import Group, control
from mail_emulator.transactional import COUNTERS

_EMPTY_REQUEST = dict.fromkeys(
    ("content", "senderName", "replyTo", "sendListNames", "repelListNames", "languageCode", "marketName",
     "subscriptName", "projectCode")
)  # fmt: skip
_FOREVER = 2**62
_SENDER = "news@example.com"


class Seeding(Group):
    """Methods that add state without a request in the journal."""

    @control
    def add_sender(
        self, sender_email: str, *, types: Iterable[int] = (1, 2), verified: bool = True, service: bool = False
    ) -> None:
        """Add a sender.

        :param sender_email: an address or a domain.
        :param types: 1 marketing, 2 transactional.
        :param verified: whether its DNS checks pass.
        :param service: whether the domain is the service's own.
        """
        self.set_dns(sender_email, mx=verified, spf=verified, dkim=verified, dmarc=verified)
        statuses = dict.fromkeys(senders.CHECKS, int(verified))
        for sender_type in types:
            self.service.store.insert("senders", entry=sender_email, type=sender_type, service=int(service), **statuses)

    @control
    def set_dns(
        self,
        domain: str,
        *,
        mx: bool = True,
        spf: bool = True,
        dkim: bool = True,
        dmarc: bool = True,
        selector: str | None = None,
    ) -> None:
        """Set the DNS checks of a sender's domain.

        :param domain: the domain, or an address in it.
        :param mx: whether MX passes.
        :param spf: whether SPF passes.
        :param dkim: whether DKIM passes.
        :param dmarc: whether DMARC passes.
        :param selector: the only selector with which DKIM passes. Default: any.
        """
        self.service.store.run(
            "INSERT OR REPLACE INTO dns VALUES (?, ?, ?, ?, ?, ?)",
            [senders.domain_of(domain), int(mx), int(spf), int(dkim), int(dmarc), selector],
        )

    @control
    def add_list(
        self,
        name: str,
        emails: Iterable[str] = (),
        *,
        count: int = 0,
        dynamic: bool = False,
        filters: str = "",
        description: str | None = None,
        team: str | None = None,
    ) -> None:
        """Add a contact list.

        :param name: its name.
        :param emails: addresses of its contacts.
        :param count: number of generated contacts (``<name>-<n>@example.com``).
        :param dynamic: whether it is a dynamic list.
        :param filters: filters of a dynamic list.
        :param description: its description.
        :param team: its team. Default: the account's.
        """
        context = self.service.context()
        with context.store.transaction():
            list_id = lists.create(context, name, description)
            context.store.run(
                "UPDATE lists SET team = ?, type = ?, filters = ? WHERE id = ?",
                [team or context.settings.team_name, lists.DYNAMIC if dynamic else lists.STATIC, filters, list_id],
            )
            slug = "-".join(name.lower().split())
            generated = (f"{slug}-{number}@example.com" for number in range(count))
            settings = self.service.settings
            everyone = [
                (contacts.key_of(email, None, settings), email, None, None, "{}") for email in (*emails, *generated)
            ]
            contacts.save(context, everyone, contacts.CREATE_AND_UPDATE, list_id)

    @control
    def add_contact(
        self,
        email: str | None = None,
        *,
        name: str | None = None,
        phone_number: str | None = None,
        properties: Mapping[str, str] | None = None,
        lists: Iterable[str] = (),
    ) -> None:
        """Add a contact.

        :param email: its address.
        :param name: its name.
        :param phone_number: its phone number.
        :param properties: its properties.
        :param lists: existing lists that it is added to.
        :raises ValueError: there is no such list.
        """
        context = self.service.context()
        key = contacts.key_of(email, phone_number, self.service.settings)
        incoming = (key, email, phone_number, name, encode_json(properties or {}).decode())
        contacts.save(context, [incoming], contacts.CREATE_AND_UPDATE, None, with_properties=True)
        for list_name in lists:
            list_id = context.store.value("SELECT id FROM lists WHERE name = ?", [list_name])
            if list_id is None:
                raise ValueError(f"there is no list {list_name!r}")
            context.store.members.add_keys(list_id, [key])

    @control
    def suppress(self, email: str, reason: str = "Unsubscribed") -> None:
        """Drop mail to this address from now on.

        :param email: the address.
        :param reason: the reason.
        """
        self.service.store.run(
            "INSERT OR REPLACE INTO suppressions VALUES (?, ?, ?)", [email.lower(), reason, self.service.clock.now_ms()]
        )

    @control
    def add_template(self, name: str, *, subject: str, content: str) -> None:
        """Add a template.

        :param name: its name.
        :param subject: its subject.
        :param content: its content.
        """
        body = {"templateName": name, "templateSubject": subject, "templateContent": content, "editorType": "DRAG"}
        templates.add(self.service.context(), body)

    @control
    def add_subscription(self, name: str) -> None:
        """Add a subscription type, for subscriptName of campaigns.

        :param name: its name.
        """
        self.service.store.run("INSERT OR IGNORE INTO labels VALUES ('subscription', ?)", [name])

    @control
    def plan_campaign(
        self, mail_name: str, *, seconds: float | None = None, looks: int | None = None, outcome: str | None = None
    ) -> None:
        """Set the duration and the outcome of a task's sending, before or after its creation.

        :param mail_name: the campaign's exact name.
        :param seconds: virtual seconds of sending. Default: the setting.
        :param looks: number of responses of campaign get that show it sending. Default: the setting.
        :param outcome: ``done`` or ``failed``. Default: the setting.
        :raises ValueError: it is neither.
        """
        if outcome not in (None, "done", "failed"):
            raise ValueError(f"outcome must be done or failed, not {outcome!r}")
        store = self.service.store
        store.run("INSERT OR REPLACE INTO campaign_plans VALUES (?, ?, ?, ?)", [mail_name, seconds, looks, outcome])
        store.run(
            "UPDATE campaigns SET plan_seconds = coalesce(?, plan_seconds), plan_outcome = coalesce(?, plan_outcome), "
            "plan_looks = CASE WHEN ? IS NULL AND ? IS NULL THEN plan_looks ELSE ? END WHERE name = ? AND state = ?",
            [seconds, outcome, looks, seconds, looks, mail_name, SENDING]
        )  # fmt: skip

    @control
    def set_campaign_state(self, mail_name: str, state: str) -> None:
        """Force a task into a state.

        :param mail_name: the campaign's exact name.
        :param state: ``draft``, ``scheduled``, ``sending``, ``done``, ``failed``, ``cancelled`` or ``removed``.
        :raises ValueError: there is no such state or task.
        """
        store, now = self.service.store, self.service.clock.now_ms()
        if state == "removed":
            changed = store.run("UPDATE campaigns SET deleted_at = ? WHERE name = ?", [now, mail_name])
        elif state in STATES:
            ended = now if state in (DONE, FAILED) else None
            changed = store.run(
                "UPDATE campaigns SET state = ?, deleted_at = NULL, ended_at = ?, "
                "started_at = coalesce(started_at, ?), plan_seconds = coalesce(plan_seconds, ?) WHERE name = ?",
                [state, ended, now, self.service.settings.sending_seconds, mail_name]
            )  # fmt: skip
        else:
            raise ValueError(f"state must be one of {', '.join(STATES)} or removed, not {state!r}")
        if not changed:
            raise ValueError(f"there is no campaign {mail_name!r}")

    @control
    def set_campaign_stats(self, mail_name: str, **counts: int) -> None:
        """Set the counters of a task; those not given are 0.

        :param mail_name: the campaign's exact name.
        :param counts: counters by the specification's names (``sentCount``, ``openCount`` ...).
        :raises ValueError: there is no such counter or task.
        """
        if unknown := counts.keys() - set(campaign_life.COUNTERS):
            raise ValueError(f"no counter of a campaign: {', '.join(sorted(unknown))}")
        fixed = encode_json({**dict.fromkeys(campaign_life.COUNTERS, 0), **counts}).decode()
        if not self.service.store.run("UPDATE campaigns SET fixed_stats = ? WHERE name = ?", [fixed, mail_name]):
            raise ValueError(f"there is no campaign {mail_name!r}")

    @control
    def add_campaign(
        self,
        mail_name: str,
        *,
        send_date: datetime | str | None = None,
        sent: int = 1000,
        state: str = DONE,
        sender_mail: str = _SENDER,
        subject: str = "News",
        type: str = "MailList",
        team: str | None = None,
    ) -> None:
        """Add a past task with statistics for recipients without addresses.

        A task in the state "sending" starts to send now.

        :param mail_name: the campaign's exact name.
        :param send_date: its send time, with a time zone. Default: now.
        :param sent: number of recipients.
        :param state: its state.
        :param sender_mail: its sender.
        :param subject: its subject.
        :param type: ``MailList`` or ``ABTest``.
        :param team: its team. Default: the account's.
        """
        moment = datetime.fromisoformat(send_date) if isinstance(send_date, str) else send_date
        at = self.service.clock.now_ms() if moment is None else to_ms(moment)
        with self.service.store.transaction():
            self._add_campaign(mail_name, at, sent, state, sender_mail, subject, type, team)

    @control
    def add_campaigns(self, count: int, *, prefix: str = "campaign", first_day: date | str, per_day: int = 1) -> None:
        """Add finished tasks ``<prefix>-<n>``, sent from 08:00 UTC on.

        :param count: number of tasks.
        :param prefix: beginning of their names.
        :param first_day: day of the first one.
        :param per_day: number of tasks for each day.
        """
        day = date.fromisoformat(first_day) if isinstance(first_day, str) else first_day
        start = datetime(day.year, day.month, day.day, 8, tzinfo=UTC)
        pause = timedelta(hours=15) / per_day
        with self.service.store.transaction():
            for number in range(count):
                moment = start + timedelta(days=number // per_day) + (number % per_day) * pause
                sent = 100 + (number * 7919) % 9900
                self._add_campaign(f"{prefix}-{number:06d}", to_ms(moment), sent)

    def _add_campaign(
        self,
        name: str,
        at: int,
        sent: int,
        state: str = DONE,
        sender: str = _SENDER,
        subject: str = "News",
        type: str = "MailList",
        team: str | None = None,
    ) -> None:
        settings = self.service.settings
        self.service.store.insert(
            "campaigns",
            guid=str(uuid.uuid4()),
            team=team or settings.team_name,
            name=name,
            type=type,
            state=state,
            created=at,
            send_at=at,
            started_at=self.service.clock.now_ms() if state == SENDING else at,
            ended_at=at + int(settings.sending_seconds * 1000) if state in (DONE, FAILED) else None,
            plan_seconds=settings.sending_seconds,
            sender=sender,
            subject=subject,
            request=encode_json({**_EMPTY_REQUEST, "arranged": True}).decode(),
            events_to=_FOREVER,
            **asdict(expected_reactions(sent, settings, name)),
        )

    @control
    def set_transactional_day(self, day: date | str, **counts: int) -> None:
        """Set counters of a day's transactional statistics.

        :param day: the day.
        :param counts: counters by the specification's names (``sentCount``, ``openCount`` ...).
        :raises ValueError: there is no such counter.
        """
        if unknown := counts.keys() - {name for name, *_ in COUNTERS}:
            raise ValueError(f"no counter of a transactional day: {', '.join(sorted(unknown))}")
        number = (date.fromisoformat(day) if isinstance(day, str) else day).toordinal() - date(1970, 1, 1).toordinal()
        self.service.store.run(
            "INSERT OR REPLACE INTO fixed_days VALUES (?, ?)", [str(number), encode_json(counts).decode()]
        )
