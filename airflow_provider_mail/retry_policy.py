"""A retry policy for tasks of any kind that talk to the service, on Airflow 3.3 and later.

The operators of this package need none: they end a task at once for an error that no retry can mend. A ``@task``
function that uses :class:`~airflow_provider_mail.hooks.mail.MailHook` gets the same decisions with
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


LONGEST_WAIT = timedelta(days=1)


class MailRetryPolicy(RetryPolicy):
    """Fails at once what no retry can mend or what must not be repeated; waits as long as the service asked, a day at
    most.

    Errors that are not the service's are left to the task's own settings.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide by the error of the service in the exception or in what led to it."""
        error = _mail_error(exception)
        if error is None:
            return RetryDecision.default()
        if not error.temporary:
            return RetryDecision.fail(reason=f"no retry mends this: {type(error).__name__}")
        if isinstance(error, MailServiceError) and error.retry_after is not None:
            wait = min(timedelta(seconds=error.retry_after), LONGEST_WAIT)
            return RetryDecision.retry(delay=wait, reason=f"the service asked to wait {error.retry_after:.0f} s")
        return RetryDecision.default()

    def serialize(self) -> dict[str, Any]:
        """It has no settings."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> MailRetryPolicy:
        """It has no settings."""
        return cls()


def _mail_error(exception: BaseException | None) -> MailError | None:
    while exception is not None:
        if isinstance(exception, MailError):
            return exception
        hidden = None if exception.__suppress_context__ else exception.__context__
        exception = exception.__cause__ or hidden
    return None
