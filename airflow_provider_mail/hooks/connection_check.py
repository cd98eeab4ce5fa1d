"""Check a connection with one read-only request."""

from __future__ import annotations

from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig, RetrySettings, clear_text_warning, credential_of, explain
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.lists import GetLists

MAX_TIMEOUT = 10.0
"""Maximum timeout in seconds; the user waits for the result of the test button."""


def check(config: ClientConfig) -> tuple[bool, str]:
    """Check the configuration of a connection with one request.

    :return: whether it works, and a message that names what to fix.
    """
    once = config.model_copy(
        update={"retry": RetrySettings(attempts=1, total_seconds=0), "timeout": min(config.timeout, MAX_TIMEOUT)}
    )
    try:
        with MailClient(once) as client:
            lists = client.send(GetLists(page_size=1)).total_records or 0
    except MailError as error:
        return False, explain(error, once)
    sentences = [f"{config.base_url} accepts the {credential_of(config)}; contact lists there: {lists}."]
    if config.sandbox:
        sentences.append("The connection is in sandbox mode: no mail is sent and nothing is changed.")
    if warning := clear_text_warning(config):
        sentences.append(f"Warning: {warning}.")
    return True, " ".join(sentences)
