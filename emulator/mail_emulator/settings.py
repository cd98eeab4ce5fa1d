"""Settings: what the specification leaves open, and the behavior of the emulator."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

T = TypeVar("T")


def setting(default: T, meaning: str) -> T:
    """Declare a setting."""
    declared: T = dataclasses.field(default=default, metadata={"meaning": meaning})
    return declared


@dataclass(slots=True)
class EmulatorSettings:
    """Settings of the emulated service.

    Each can be changed while the emulator runs, is checked on assignment (``ValueError`` names the setting), and can be
    set on the command line with ``--setting name=value``. The defaults are one plausible service; where the
    specification says "not shown", a client must work with every allowed value.
    """

    # The account
    api_key: str = setting("emulator-api-key", "The API key that the ApiKey header must carry.")
    team_name: str = setting("Marketing", "Name of the team that the API key belongs to.")
    team_id: int = setting(7, "Id of that team (TeamId of its lists).")
    user_id: int = setting(1001, "Id of the user behind the API key (createUserId, CreateUserId).")
    cross_team_permission: bool = setting(False, "Whether allTeam and the teamName of another team are permitted.")
    email_credits: int | None = setting(None, "Transactional recipients that may still be mailed; null is unlimited.")

    contact_quota: int | None = setting(None, "Contacts that there may be (code 403 for one more); null is unlimited.")

    # OAuth
    oauth_client_id: str = setting("emulator-client", "client_id of the registered OAuth application.")
    oauth_client_secret: str = setting("emulator-client-secret", "client_secret of the registered OAuth application.")
    oauth_redirect_uri: str = setting("http://127.0.0.1:8099/callback", "Registered redirect_uri, compared exactly.")
    oauth_token_seconds: int | None = setting(None, "Lifetime of access tokens; null is permanent (expiresIn -1).")
    oauth_repeated_flow: Literal["same", "replace"] = setting(
        "same", "Repeating the flow outside the renewal window: the same token again, or a new one that ends the old."
    )
    oauth_echo_state: bool = setting(False, "Whether the redirect echoes a state parameter of the authorize request.")
    oauth_denial: Literal["redirect_error", "redirect_bare", "page"] = setting(
        "redirect_error", "After denial: redirect with error=access_denied, redirect without anything, or a page."
    )
    oauth_error_code: int = setting(400, "Body code of a rejected token exchange.")

    # Errors
    errors_as_http_status: bool = setting(False, "Whether a body code other than 200 is the HTTP status as well.")
    bad_api_key_http_status: int = setting(401, "HTTP status for a missing or invalid API key.")
    bad_api_key_code: int = setting(401, "Body code for a missing or invalid API key.")
    not_found_code: int = setting(404, "Body code when the named object does not exist (200: it is ignored).")
    duplicate_code: int = setting(400, "Body code when a list, template or sender of that name exists.")
    duplicate_mail_name_code: int = setting(400, "Body code when a campaign of that mailName exists.")
    removed_shown_seconds: float = setting(0.0, "Seconds for which campaign get still returns a deleted task.")
    stored_mail_name: Literal["as_sent", "lower", "nfc", "spaces", "all"] = setting(
        "as_sent",
        "What a new mailName becomes: small letters, NFC, single spaces and none at its ends, or all three.",
    )
    enforce_unique_mail_name: bool = setting(True, "Whether a second campaign of the same mailName is rejected.")
    wrong_state_code: int = setting(403, "Body code when the state of a campaign forbids cancelling or deleting.")
    unverified_sender_code: int = setting(403, "Body code of campaign sends when senderMail is not a verified sender.")
    unknown_subscription_code: int = setting(403, "Body code when subscriptName does not exist.")
    forbidden_team_code: int = setting(403, "Body code for cross-team access without permission.")
    duplicate_unique_msg_id_code: int | None = setting(None, "Body code for a uniqueMsgID seen before; null accepts.")

    # Checking of requests
    unknown_fields: Literal["reject", "ignore"] = setting("reject", "Fields that the specification does not list.")
    null_is_absent: bool = setting(True, "Whether a null field counts as not given.")
    require_json_content_type: bool = setting(True, "Whether Content-Type must be application/json.")
    template_name_unit: Literal["bytes", "characters"] = setting("bytes", "Unit of templateName's limit of 250.")
    check_contact_emails: bool = setting(True, "Whether contact addresses must look like addresses.")
    contact_identity: Literal["folding", "exact"] = setting(
        "folding", "Whether addresses that differ only in case are one contact."
    )
    import_unknown_update: Literal["skip", "reject"] = setting(
        "skip", "A row of an import with updateMode 3 that is no contact: skipped, or the import is rejected."
    )
    list_modify_date: bool = setting(True, "Whether ModifyDate of a list changes when contacts are added.")
    refused_addresses: tuple[str, ...] = setting((), "Contact addresses that the service rejects.")
    import_bad_row: Literal["reject", "skip"] = setting("reject", "An invalid row: reject the import, or skip the row.")
    import_text_only: bool = setting(False, "Whether contactData values must be strings, or null if absent.")
    import_max_rows: int | None = setting(None, "Most rows in one import; null is unlimited.")
    import_lists_existing: bool = setting(False, "Whether updateMode 2 adds existing contacts to the list too.")
    contact_properties: tuple[str, ...] | None = setting(None, "Allowed property names of an import; null allows all.")
    name_reset_on_update: bool = setting(False, "Whether an upsert without name resets it to the email.")
    cc_bcc_required: bool = setting(True, "Whether cc and bcc must be present, also when empty.")
    batch_email_check: bool = setting(True, "Whether the batch form validates recipient addresses, as the single does.")
    single_form_template: bool = setting(False, "Whether the single form accepts templateName instead of content.")
    sender_type_matters: bool = setting(True, "Whether campaigns need senders of type 1, others of type 2.")

    transactional_needs_verified: bool = setting(False, "Whether transactional senders must be verified.")

    # Form of responses
    success_message: str | None = setting("", "The message of a successful response.")
    list_name_key: Literal["ListName", "listName"] = setting("ListName", "Spelling of the name key of contact lists.")
    contact_not_found: Literal["error", "null", "absent"] = setting(
        "error", "contacts/get of an unknown address: not_found_code, contact null, or no contact key."
    )
    contains_ignores_case: bool = setting(True, "Whether contains filters ignore the case of ASCII letters.")
    newest_first: bool = setting(True, "Order of campaign get and template get; false is oldest first.")
    list_sort_descending: bool = setting(True, "Direction of sort in lists/get.")
    max_page_size: int = setting(1000, "Largest pageSize of campaign, template and list get.")
    oversized_page: Literal["cap", "reject"] = setting("cap", "A pageSize over the maximum: capped, or 400.")
    sandbox_ids: Literal["made_up", "null"] = setting("made_up", "id and guid in the response to a sandboxed campaign.")
    stats_empty_days: bool = setting(True, "Whether transactional statistics hold days without any send.")
    stats_utc_offset_hours: float = setting(0.0, "Zone of the calendar days of both statistics, hours east of UTC.")
    stats_mail_name_match: Literal["contains", "exact"] = setting("contains", "How stats/get compares mailName.")
    stats_day: Literal["send", "event"] = setting("send", "The day on which transactional opens count.")

    # Life of a campaign
    scheduled_status: Literal[-1, 0, 1, 2, 4] = setting(
        1, "mailStatus of a task whose send time has not come; 0 is a fifth."
    )
    sending_seconds: float = setting(5.0, "Virtual seconds from the start of sending to its end.")
    sending_looks: int | None = setting(None, "Responses of campaign get that show a task sending; replaces seconds.")
    campaign_outcome: Literal["done", "failed"] = setting("done", "How sending ends: mailStatus 2 or 4.")
    state_after_cancel: Literal["draft", "removed", "failed", "cancelled"] = setting(
        "draft", "State of a cancelled task; cancelled keeps the mailStatus of a scheduled one."
    )
    deletable_states: tuple[str, ...] = setting(
        ("draft", "scheduled", "sending", "done", "failed", "cancelled"), "States in which a campaign may be deleted."
    )
    visible_after_seconds: float = setting(0.0, "Virtual seconds until a created task appears in campaign get.")
    visible_after_looks: int = setting(0, "Calls of campaign get that do not yet return a created task.")
    draft_at_first_seconds: float = setting(0.0, "Virtual seconds for which a created task is a draft (-1).")
    added_content: str = setting("", "HTML that is added to the content of a campaign, such as a tracking pixel.")
    send_time_in_minutes: bool = setting(False, "Whether sendByDateTime is cut to whole minutes.")
    kept_task_state: Literal["draft", "scheduled"] = setting("draft", "State of a task kept after code 500.")

    # Reactions of recipients
    seed: int = setting(1, "Seed of the reactions of recipients.")
    hard_bounce_rate: float = setting(0.008, "Share of sent mail that fails for good.")
    soft_bounce_rate: float = setting(0.012, "Share of sent mail that fails for now.")
    open_rate: float = setting(0.32, "Share of delivered mail that is opened in the end.")
    click_rate: float = setting(0.06, "Share of delivered mail that is clicked in the end.")
    unsubscribe_rate: float = setting(0.003, "Share of delivered mail that leads to an unsubscription in the end.")
    spam_rate: float = setting(0.0005, "Share of delivered mail reported as spam in the end.")
    repeated_open_every: int = setting(5, "Every n-th opener opens again; 0 is none.")
    engagement_days: float = setting(7.0, "Virtual days after which counts stop growing.")
    engagement_half_hours: float = setting(20.0, "Virtual hours after which about half of the opens have happened.")

    # Senders
    dns_default: bool = setting(False, "Whether all four DNS checks pass for a domain that was not set.")
    dns_live: bool = setting(True, "Whether verified_senders/get checks DNS, or returns the last verify.")

    # Webhooks
    task_status_events: bool = setting(True, "Whether TaskStatus events, which have no toggle, are pushed.")
    task_status_key: str = setting("TaskStatus", "Key under which a TaskStatus event says Created or Completed.")
    transactional_event_type: str = setting("Transactional", "EventType of events of transactional mail.")
    campaign_event_type: str = setting("Campaign", "EventType of events of campaigns.")
    event_msg_id: Literal["per_recipient", "given"] = setting(
        "per_recipient", "UniqueMsgID in events of mail to several recipients: numbered, or the one given for all."
    )
    sparse_events: bool = setting(False, "Whether only Delivered events carry SenderEmail and SubmitDateTimeV2.")
    webhook_max_events: int = setting(1000, "Most events in one push; the specification's limit is 1000.")
    webhook_interval_seconds: float = setting(0.05, "Real seconds between two checks for events to push.")
    webhook_retries: int = setting(3, "Retries of a push whose response was not 2xx.")
    webhook_retry_seconds: float = setting(0.2, "Real seconds between two attempts of a push.")
    webhook_timeout_seconds: float = setting(10.0, "Timeout of a push in real seconds.")
    webhook_duplicate_every: int = setting(0, "Every n-th accepted push is sent twice; 0 is none.")

    # The server
    date_header: bool = setting(True, "Whether responses have a Date header, which shows the virtual clock.")
    latency_seconds: float = setting(0.0, "Real seconds added to every operation.")
    requests_per_second: float | None = setting(None, "Rate limit, enforced with HTTP 429; null is unlimited.")
    retry_after_seconds: float | None = setting(1.0, "Retry-After of the rate limit's 429; null leaves it out.")
    max_body_bytes: int = setting(64_000_000, "Largest request body; beyond it HTTP 413.")
    tls_certificate: str | None = setting(None, "PEM file with certificate and key; given, the server speaks TLS.")
    journal_limit: int = setting(100_000, "Number of requests in the journal.")
    journal_body_bytes: int = setting(65_536, "Bodies longer than this are summarized in the journal.")

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, checked(name, value))

    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults, by name."""
        return {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if getattr(self, item.name) != item.default
        }

    def update(self, values: Mapping[str, object]) -> None:
        """Assign all of these settings, or none if one is unknown or invalid; ValueError names it."""
        values = {name: checked(name, value) for name, value in values.items()}
        for name, value in values.items():
            setattr(self, name, value)


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(EmulatorSettings)


def checked(name: str, value: object) -> object:
    """Return the valid value of a setting, with tuples for lists; ValueError names the setting."""
    if name not in _types():
        raise ValueError(f"there is no emulator setting {name!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"emulator setting {name} cannot be {value!r}")
    try:
        return msgspec.convert(value, _types()[name])
    except msgspec.ValidationError as error:
        raise ValueError(f"emulator setting {name} cannot be {value!r}: {error}") from None


def from_text(assignment: str) -> tuple[str, object]:
    """Parse ``name=value``; ValueError says what is wrong."""
    name, equals, text = assignment.partition("=")
    if not equals:
        raise ValueError(f"--setting {assignment!r} is not name=value")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    try:
        return name, checked(name, value)
    except ValueError:
        return name, checked(name, text)
