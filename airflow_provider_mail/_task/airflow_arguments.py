"""Airflow's own arguments of every task, as types for ``**kwargs``.

With ``**kwargs: Unpack[TaskArguments]`` an editor completes Airflow's arguments, and a type checker rejects names that
neither this package nor Airflow declares. A test compares the names with those of the installed Airflow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Required, TypedDict

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context, RetryPolicy, TaskGroup
    from airflow.sdk.types import WeightRuleParam

    StateChangeCallback = Callable[[Context], None]


class TaskArguments(TypedDict, total=False):
    """What ``BaseOperator`` takes, on Airflow 3.0 to 3.3."""

    task_id: Required[str]
    owner: str
    email: str | Sequence[str] | None
    email_on_retry: bool
    email_on_failure: bool
    retries: int | None
    retry_delay: timedelta | float
    retry_exponential_backoff: float
    max_retry_delay: timedelta | float | None
    retry_policy: RetryPolicy | None
    start_date: datetime | None
    end_date: datetime | None
    depends_on_past: bool
    ignore_first_depends_on_past: bool
    wait_for_past_depends_before_skipping: bool
    wait_for_downstream: bool
    dag: DAG | None
    params: MutableMapping[str, Any] | None
    default_args: dict[str, Any] | None
    priority_weight: int
    weight_rule: WeightRuleParam
    queue: str
    pool: str | None
    pool_slots: int
    sla: timedelta | None
    execution_timeout: timedelta | None
    on_execute_callback: StateChangeCallback | Collection[StateChangeCallback] | None
    on_failure_callback: StateChangeCallback | list[StateChangeCallback] | None
    on_success_callback: StateChangeCallback | Collection[StateChangeCallback] | None
    on_retry_callback: StateChangeCallback | list[StateChangeCallback] | None
    on_skipped_callback: StateChangeCallback | Collection[StateChangeCallback] | None
    pre_execute: Callable[[Context], None] | None
    post_execute: Callable[[Context, Any], None] | None
    trigger_rule: str
    resources: dict[str, Any] | None
    run_as_user: str | None
    map_index_template: str | None
    max_active_tis_per_dag: int | None
    max_active_tis_per_dagrun: int | None
    executor: str | None
    executor_config: dict[str, Any] | None
    do_xcom_push: bool
    multiple_outputs: bool
    inlets: Any
    outlets: Any
    task_group: TaskGroup | None
    doc: str | None
    doc_md: str | None
    doc_json: str | None
    doc_yaml: str | None
    doc_rst: str | None
    task_display_name: str | None
    logger_name: str | None
    allow_nested_operators: bool
    render_template_as_native_obj: bool | None


class SensorArguments(TaskArguments, total=False):
    """What ``BaseSensorOperator`` takes besides ``poke_interval`` and ``timeout``."""

    soft_fail: bool
    mode: str
    exponential_backoff: bool
    max_wait: timedelta | float | None
    silent_fail: bool
    never_fail: bool
