"""A digest of alerts: the first one is sent at once, those of the window after it in one summary."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_mail._audience.memory import Memory
from airflow_provider_mail._config import name_prefix
from airflow_provider_mail._polling.inbox import read_connection
from airflow_provider_mail.api.errors import MailAmbiguousSendError, MailConfigError, MailError
from airflow_provider_mail.api.transactional import SendBatch, SendMail, unique_msg_id
from airflow_provider_mail.notifications._context import render_subject, render_summary
from airflow_provider_mail.notifications._message import (
    DeadlineMailHook,
    OutgoingMessage,
    escape_tags,
    one_line_subject,
    send,
    summarize,
    with_note,
)
from airflow_provider_mail.warehouse.errors import WarehouseError
from airflow_provider_mail.warehouse.time_limit import read_within

if TYPE_CHECKING:
    from airflow_provider_mail._audience.alerts import Alerts, WaitingAlert
    from airflow_provider_mail.notifications._context import NotificationContext

log = logging.getLogger(__name__)

OWN_OF_ALERT = {"subject", "content", "unique_msg_id", "attachment"}
"""The fields of a request that differ between the alerts of one digest."""

MAX_GROUPS = 50


def _alerts() -> Alerts:
    memory = Memory.configured()
    if memory is None:
        raise MailConfigError("digest: [mail] memory_conn_id is not set (AIRFLOW__MAIL__MEMORY_CONN_ID)")
    # The connection is read here: a thread with a time limit must not use Airflow.
    read_connection(memory.alerts.hook)
    return memory.alerts


def notify(hook: DeadlineMailHook, message: OutgoingMessage, event: NotificationContext, window: float) -> str:
    """Send an alert, alone or in a summary of those that wait, or store it; return a line for the log.

    An alert that cannot be stored is sent alone.

    :param window: seconds after a mail in which alerts wait for the summary.
    """
    title = message.request.subject
    if title == one_line_subject(render_subject(event)):  # of a mapped task, all are counted together
        title = render_subject(replace(event, map_index=-1))
    envelope = message.request.model_dump(mode="json", exclude=OWN_OF_ALERT)
    recipients = json.dumps([name_prefix(), hook.mail_conn_id, window, envelope], sort_keys=True)
    content = {
        "mail_conn_id": hook.mail_conn_id, "request": envelope, "title": title, "error": event.error.partition("\n")[0],
        "url": event.log_url or event.run_url,
    }  # fmt: skip
    seconds = hook.seconds
    try:
        alerts = _alerts()
        digest = alerts.digest_of(recipients)
        claim, waiting = read_within(lambda: alerts.claim(digest, content, window=window, timeout=seconds), seconds / 4)
    except Exception as error:
        problem = f"digest: sent alone, because the alert could not be stored: {summarize(error)}"
        log.error("Mail: %s", problem)
        alone = {"content": with_note(str(message.request.content), [problem])}
        hook.seconds = seconds * 3 / 4
        return send(hook, replace(message, request=message.request.model_copy(update=alone)))
    if not waiting:
        return "Mail: the alert waits for the summary."
    if len(waiting) > 1 or waiting[0].may_be_sent:
        message = _summary(digest, waiting)
    return _deliver(hook, alerts, claim, message)


def send_due(timeout: float) -> int:
    """Send the summaries whose window is over; return their number.

    :raises MailError: one was not sent, or may have been; the others were tried.
    """
    alerts, sent, failure = _alerts(), 0, None
    for digest in alerts.due():
        claim, waiting = alerts.claim(digest, timeout=timeout)
        if not waiting:
            continue
        hook = DeadlineMailHook(waiting[-1].content["mail_conn_id"], timeout)
        try:
            log.info(_deliver(hook, alerts, claim, _summary(digest, waiting)))
            sent += 1
        except MailError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return sent


def _deliver(hook: DeadlineMailHook, alerts: Alerts, claim: str, message: OutgoingMessage) -> str:
    """Send a message within half of the time, and store what has become of its alerts in another quarter."""
    seconds, outcome = hook.seconds, "waiting"
    hook.seconds = seconds / 2
    try:
        line = send(hook, message)
        outcome = "sent"
    except MailAmbiguousSendError:
        outcome = "in doubt"
        raise
    finally:
        try:
            read_within(lambda: alerts.settle(claim, outcome), seconds / 4)
        except (WarehouseError, TimeoutError) as error:
            log.error("Mail: the next summary may repeat alerts of this mail: %s", summarize(error))
    return line


def _summary(digest: str, waiting: Sequence[WaitingAlert]) -> OutgoingMessage:
    groups: dict[str, list[WaitingAlert]] = {}
    for alert in waiting:
        groups.setdefault(alert.content["title"], []).append(alert)
    largest = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    count, (title, _) = len(waiting), largest[0]
    others = f" and {len(groups) - 1} more" if len(groups) > 1 else ""
    subject = f"{count} alert{'s' * (count > 1)}: {title}{others}"
    rows = [
        {
            "title": name,
            "count": len(own),
            "times": [f"{datetime.fromtimestamp(own[at].happened_at, UTC):%Y-%m-%d %H:%M} UTC" for at in (0, -1)],
            "doubtful": sum(alert.may_be_sent for alert in own),
            **{key: own[-1].content[key] for key in ("error", "url")},
        }
        for name, own in largest[:MAX_GROUPS]
    ]
    stored: dict[str, Any] = waiting[-1].content["request"]
    form: type[SendBatch | SendMail] = SendBatch if "message_versions" in stored else SendMail
    request = form.model_validate(
        {
            **stored,
            "subject": escape_tags(one_line_subject(subject), "{ {"),
            "content": escape_tags(render_summary(subject, rows, len(groups) - len(rows)), "&#123;&#123;"),
            "unique_msg_id": unique_msg_id(json.dumps([digest, *sorted(alert.alert for alert in waiting)]), 0),
        }
    )
    versions = request.message_versions if isinstance(request, SendBatch) else ()
    recipients = sum(len(version.to) + len(version.cc) + len(version.bcc) for version in versions)
    return OutgoingMessage(request, recipients or 1, ())
