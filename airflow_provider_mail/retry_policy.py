"""A retry policy for tasks that call the service, on Airflow 3.3 and later.

The operators of this package do not need it: they fail a task immediately for an error that a retry cannot fix. A
``@task`` function that uses :class:`~airflow_provider_mail.hooks.mail.MailHook` gets the same decisions with
``retry_policy=MailRetryPolicy()``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_mail.api.errors import MailError, MailServiceError
from airflow_provider_mail.version_compat import AIRFLOW_V_3_3_PLUS

if not AIRFLOW_V_3_3_PLUS:
    raise ImportError("MailRetryPolicy needs Airflow 3.3 or later: older ones have no retry policies")

from airflow.sdk import RetryDecision, RetryPolicy

if TYPE_CHECKING:
    from airflow.sdk import Context


__all__ = ["MailRetryPolicy"]

MAX_DELAY = timedelta(days=1)


class MailRetryPolicy(RetryPolicy):
    """Fail a task at once when a retry cannot help or must not happen; otherwise wait as long as the service requests.

    The wait is at most a day. For errors that are not the service's, the task's own settings apply.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide by the service's error in the exception or in its causes.

        :param try_number: the number of the try; not used.
        :param max_tries: the number of tries; not used.
        :param context: Airflow's context; not used.
        :return: fail, retry after a delay, or the task's own settings.
        """
        error = _mail_error(exception)
        if error is None:
            return RetryDecision.default()
        if not error.temporary:
            return RetryDecision.fail(reason=f"a retry cannot help: {type(error).__name__}")
        if isinstance(error, MailServiceError) and error.retry_after is not None:
            wait = min(timedelta(seconds=error.retry_after), MAX_DELAY)
            return RetryDecision.retry(delay=wait, reason=f"the service asked to wait {error.retry_after:.0f} s")
        return RetryDecision.default()

    def serialize(self) -> dict[str, Any]:
        """Return no settings: the policy has none."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> MailRetryPolicy:
        """Create the policy from its stored settings.

        :param data: the settings; the policy has none.
        """
        return cls()


def _mail_error(exception: BaseException | None) -> MailError | None:
    while exception is not None:
        if isinstance(exception, MailError):
            return exception
        hidden = None if exception.__suppress_context__ else exception.__context__
        exception = exception.__cause__ or hidden
    return None
