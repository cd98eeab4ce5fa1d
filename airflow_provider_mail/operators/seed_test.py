"""Send a campaign to a few people who look at it before everybody gets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Unpack

from airflow_provider_mail._task.checks import unwrap
from airflow_provider_mail._task.mixin import Templated
from airflow_provider_mail._task.rules import list_names
from airflow_provider_mail._task.waiting import DEFERRABLE
from airflow_provider_mail.operators.campaigns import MailCreateCampaignOperator, OnIncomplete
from airflow_provider_mail.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from airflow_provider_mail._task.airflow_arguments import TaskArguments
    from airflow_provider_mail.api.campaigns import CreateCampaign

__all__ = ["MailSendTestOperator"]

SUFFIX = " (test)"


class MailSendTestOperator(MailCreateCampaignOperator):
    """Send a campaign to a seed list: the people who look at it before the others get it.

    Give it the arguments of the :class:`~airflow_provider_mail.operators.campaigns.MailCreateCampaignOperator` that
    will mail everybody, without the lists and the send time. Its campaign has the same content, the name with ``
    (test)`` behind it, and is sent at once. When the connection has a ``campaign_url``, the task links to it, so that a
    person who approves can follow the link.

    Returns ``mail_name``, ``guid``, ``adopted``, ``incomplete``, ``sandbox`` and, after a wait, ``mail_stats``. A task
    that waits pushes the others before, as the XCom ``campaign``.

    .. seealso:: the guide :ref:`howto/operator:MailSendTestOperator`
        (in the package: ``airflow_provider_mail/docs/stages.md``).

    :param mail_conn_id: the connection to the service. Default: ``mail_default``. (templated)
    :param mail_name: the name of the campaign that will mail everybody, 193 bytes at most. Default: made of dag id,
        task id and run id, and in a mapped task a digest of the lists. (templated)
    :param seed_list_names: the lists of the people who look at it. One name may be given as text. (templated)
    :param max_seeds: fail if these lists have more contacts: it may be the wrong list. Default: 50.
    :param sender_mail: a verified sender of the account. (templated)
    :param sender_name: the display name of the sender. Default: ``sender_mail``. (templated)
    :param subject: the subject, as for everybody. Default: none. (templated)
    :param content: HTML, or the name of a file, as for everybody. Default: none. (templated)
    :param allow_blank: send it although an argument that recipients see, such as ``subject`` or ``content``, is missing
        or blank, or a template rendered it to nothing or to the text ``None``. Default: false, the task fails before
        anything is sent.
    :param reply_to: the address for replies. Default: ``sender_mail``. (templated)
    :param attachment: one file: a path or URL as Airflow's ``ObjectStoragePath`` takes it, which is read when the task
        runs; or ``{"file_name": ..., "file_data": <Base64>}``. Default: none. (templated)
    :param language_code: the language of system modules such as the unsubscribe link. Default: the service's.
        (templated)
    :param market_name: the activity that the campaign belongs to; created when missing. Default: none. (templated)
    :param subscript_name: the subscription type, which must exist. Default: none. (templated)
    :param project_code: the project, created when missing. Default: none. (templated)
    :param editor_type: the service's editor: ``CLASSIC`` or ``DRAG``. Default: the service's. (templated)
    :param sandbox_mode: let the service check the request and create nothing. Default: false.
    :param wait_for_completion: wait until the campaign was sent (``mailStatus`` 2). Default: true.
    :param deferrable: wait in the triggerer, without a worker slot. Default: ``[operators] default_deferrable``.
    :param poke_interval: the time between polls; seconds or a timedelta. Default: 60 seconds.
    :param poll_error_timeout: the time for which consecutive polls may fail before the wait ends and the task is
        retried according to its ``retries``; seconds or a timedelta. Default: 600 seconds.
    :param timeout: the maximum time to wait for completion; seconds or a timedelta. Default: an hour.
    """

    send_date = None
    send_window = None
    max_run_age = None
    on_old_run = "fail"
    only_save = False
    repel_list_names = None
    ignore_differences = ()
    adopt_older = False
    send_again = False
    replace_scheduled = False
    allow_past_send_date = False
    on_incomplete: OnIncomplete = "fail"
    cancel_on_kill = False

    seed_list_names: Any
    max_seeds: int

    def __init__(
        self,
        *,
        mail_conn_id: Templated[str] = "mail_default",
        mail_name: Templated[str] | None = None,
        seed_list_names: Templated[Sequence[Templated[str]]],
        max_seeds: int = 50,
        sender_mail: Templated[str],
        sender_name: Templated[str] | None = None,
        subject: Templated[str] | None = None,
        content: Templated[str] | None = None,
        allow_blank: bool = False,
        reply_to: Templated[str] | None = None,
        attachment: Templated[Mapping[str, Templated[str]] | ObjectStoragePath] | None = None,
        language_code: Templated[str] | None = None,
        market_name: Templated[str] | None = None,
        subscript_name: Templated[str] | None = None,
        project_code: Templated[str] | None = None,
        editor_type: Templated[Literal["CLASSIC", "DRAG"]] | None = None,
        sandbox_mode: bool = False,
        wait_for_completion: bool = True,
        deferrable: bool = DEFERRABLE,
        poke_interval: float | timedelta = 60.0,
        poll_error_timeout: float | timedelta = 600.0,
        timeout: float | timedelta = 3600.0,
        **kwargs: Unpack[TaskArguments],
    ) -> None:
        super(MailCreateCampaignOperator, self).__init__(**kwargs)
        self.set_arguments(**locals())

    @property
    def send_list_names(self) -> Any:
        """The lists to which the campaign is sent."""
        return self.seed_list_names

    def request(self, context: Context) -> CreateCampaign:
        """Build the request, with the name of the test."""
        request = super().request(context)
        return request if self.mail_name is None else type(request)(**dict(request) | {"mail_name": self._test_name})

    @property
    def _test_name(self) -> str:
        return f"{self.mail_name}{SUFFIX}"

    def execute(self, context: Context) -> dict[str, Any]:
        """Check the size of the lists, and send the campaign."""
        with self.mail_errors():
            self._check_size()
        return super().execute(context)

    def _check_size(self) -> None:
        from airflow_provider_mail.api.flows.campaign_checks import list_sizes

        names = list_names("seed_list_names", unwrap(self.seed_list_names)) or []
        size = list_sizes(self.hook.get_conn(), names)
        if size is None or size > self.max_seeds:
            counted = "an unknown number of" if size is None else f"{size:,}"
            raise AirflowFailException(
                f"seed_list_names: {', '.join(names)}: {counted} contacts, max_seeds is {self.max_seeds}: "
                "nothing was sent. Is it the list of the people who look at the test?"
            )
