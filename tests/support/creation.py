"""What a task keeps of its attempts to create a campaign, without Airflow; and tries that die."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeVar

from airflow_provider_mail._task.state import TASK_STATE_KEY as RECORD_KEY  # noqa: F401
from airflow_provider_mail._task.state import StoredCreationState
from airflow_provider_mail.api._core.requests import Flow
from airflow_provider_mail.api.errors import MailError
from tests.support.tries import Killed, StateStore

T = TypeVar("T")


def creation_record(store: StateStore | None, *, try_number: int, max_tries: int = 0, **options: Any) -> Any:
    """Return what a try knows of the earlier ones, as `MailCreateCampaignOperator` reads it.

    :param store: without one (Airflow below 3.3) it knows nothing.
    :param max_tries: of the task instance, which clearing changes.
    """
    context: Any = {"ti": SimpleNamespace(try_number=try_number, max_tries=max_tries)}
    if store is not None:
        context["task_state_store"] = store
    return StoredCreationState(context, **options)


def killed_after(flow: Flow[T], steps: int, *, last_heard: bool = True) -> Flow[T]:
    """Run a flow until it has done so many steps (requests and pauses), then die.

    :param last_heard: whether the flow still learns what came of the last step.
    """
    try:
        step = next(flow)
        for number in range(steps):
            response = error = None
            try:
                response = yield step
            except MailError as caught:
                error = caught
            if number == steps - 1 and not last_heard:
                break
            step = flow.send(response) if error is None else flow.throw(error)
    except StopIteration as end:
        result: T = end.value
        return result
    raise Killed
