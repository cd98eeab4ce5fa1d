"""Is the connection right? One request that changes nothing, and its outcome in words that name what to fix."""

from __future__ import annotations

from airflow_provider_mail.api._core.advice import clear_text_warning, credential_of, explain
from airflow_provider_mail.api.client import MailClient
from airflow_provider_mail.api.config import ClientConfig, RetryRule
from airflow_provider_mail.api.errors import MailError
from airflow_provider_mail.api.lists import GetLists

PATIENCE = 10.0
"""Seconds: somebody sits in front of the button."""


def check(config: ClientConfig) -> tuple[bool, str]:
    """Try the settings of a connection.

    :return: whether they work, and a sentence for a person.
    """
    once = config.model_copy(
        update={"retry": RetryRule(attempts=1, total_seconds=0), "timeout": min(config.timeout, PATIENCE)}
    )
    try:
        with MailClient(once) as client:
            lists = client.send(GetLists(page_size=1)).total_records or 0
    except MailError as error:
        return False, explain(error, once)
    sentences = [f"{config.base_url} accepts the {credential_of(config)}; contact lists there: {lists}."]
    if config.sandbox:
        sentences.append("The connection is in sandbox mode: nothing is changed, nobody is mailed.")
    if warning := clear_text_warning(config):
        sentences.append(f"Warning: {warning}.")
    return True, " ".join(sentences)
