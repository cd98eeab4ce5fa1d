"""The tasks of a whole DAG, one after another, each as `Tries`: a run takes a tenth of a second."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, BaseOperator

from mail_emulator import Emulator
from tests.support.tries import TaskInstance, Tries

RESULT = "return_value"


class FlowTaskInstance(TaskInstance):
    """A task instance that reads what the other tasks returned and pushed."""

    xcoms: Mapping[str, Mapping[str, Any]]
    task: BaseOperator

    def xcom_pull(self, task_ids: str | None = None, key: str = RESULT, **_: Any) -> Any:
        return self.xcoms[task_ids or self.task_id].get(key)


class FlowTries(Tries):
    """The tries of one task: Airflow renders its templates before each.

    :param xcoms: of all tasks, by their ids.
    """

    def __init__(self, emulator: Emulator, dag: DAG, task_id: str, xcoms: dict[str, dict[str, Any]]) -> None:
        super().__init__(emulator)
        self._ti = FlowTaskInstance(task_id, dag_id=dag.dag_id)
        self._ti.xcoms = xcoms
        self._ti.pushed = xcoms[task_id] = {}
        self.dag = dag

    @property
    def environment(self) -> Any:
        return _environment(self.dag)

    task_id = ""
    """Of an instance of a mapped task."""
    skipped: Collection[str] = ()
    """The tasks that a branch has skipped."""

    def run(self, operator: BaseOperator, *arguments: Any) -> Any:
        self.skipped, self._ti.task = (), operator
        try:
            self._ti.pushed[RESULT] = returned = super().run(operator, *arguments)
        except Exception as error:
            if type(error).__name__ != "DownstreamTasksSkipped":
                raise
            self.skipped, returned = {task_id for task_id, _ in error.tasks}, None  # type: ignore[attr-defined]
        return returned

    @property
    def xcoms(self) -> dict[str, Any]:
        """What the task pushed and returned."""
        return self._ti.pushed

    def died(self) -> None:
        """A try has ended in another process, which was killed."""
        self._ti.try_number += 1

    def ended(self, state: str, xcoms: dict[str, Any]) -> None:
        """A try has ended in another process."""
        self._ti.try_number += 1
        self.state = state
        self._ti.pushed |= xcoms

    def _context(self, operator: BaseOperator) -> Any:
        now = datetime.now(UTC)
        return super()._context(operator) | {"data_interval_start": now, "data_interval_end": now, "dag": self.dag}

    def _prepare(self, operator: BaseOperator, context: Any) -> None:
        operator.render_template_fields(context, self.environment)
        operator.pre_execute(context)


class FlowRun:
    """One run of a DAG with the trigger rules of staged mail, and mapped tasks.

    :param most: number of tries that each task has.
    """

    def __init__(self, dag: DAG, emulator: Emulator, *, most: int) -> None:
        self._most = most
        self._emulator = emulator
        self._xcoms: dict[str, dict[str, Any]] = {}
        self.tries: dict[str, FlowTries] = {}
        self.mapped: list[FlowTries] = []
        """The instances of mapped tasks."""
        self.clear(dag)

    @property
    def states(self) -> dict[str, str]:
        return {task_id: tries.state for task_id, tries in self.tries.items()}

    @property
    def succeeded(self) -> bool:
        return self.states[self._tasks[-1].task_id] == "success" and set(self.states.values()) <= {"success", "skipped"}

    def clear(self, dag: DAG) -> None:
        """Do what a user does who clears all tasks of the run, with another version of the DAG file."""
        self._tasks: list[Any] = dag.topological_sort()
        before = self.tries
        self.tries = {
            task.task_id: before.get(task.task_id) or FlowTries(self._emulator, dag, task.task_id, self._xcoms)
            for task in self._tasks
        }
        for tries in (*self.tries.values(), *self.mapped):
            tries.state = "none"
            tries.dag = dag

    def run(self, run_task: Callable[[FlowTries, Callable[[], BaseOperator], int], object] = FlowTries.run_all) -> None:
        """Run every task that has not succeeded, after those before it, as if they had been cleared.

        :param run_task: runs the tries of a task.
        """
        for task in self._tasks:
            if task.is_mapped:
                self._run_mapped(task, run_task)
                continue
            tries = self.tries[task.task_id]
            if tries.state == "success":
                continue
            before = [self.tries[task_id] for task_id in task.upstream_task_ids]
            states = {one.state for one in before}
            if states - {"success", "skipped"}:
                tries.state = "upstream_failed"
                continue
            is_skipped = "skipped" in states and task.trigger_rule == "all_success"
            is_skipped = is_skipped or (states == {"skipped"} and task.trigger_rule != "none_failed")
            if is_skipped or any(task.task_id in one.skipped for one in before):
                tries.state = "skipped"
                continue
            if tries.number:
                tries.clear()
            run_task(tries, task.prepare_for_execution, self._most)

    def _run_mapped(self, task: Any, run_task: Callable[..., object]) -> None:
        """Run the instances of a task that is mapped over the list that another one has returned."""
        whole, expanded = self.tries[task.task_id], task.expand_input.value
        if {self.tries[task_id].state for task_id in task.upstream_task_ids} != {"success"}:
            whole.state = "upstream_failed"
            return
        if isinstance(expanded, Mapping):  # expand(), of one argument
            ((name, argument),) = expanded.items()
            arguments = [
                {name: argument.callables[0](one)} for one in self._xcoms[argument.arg.operator.task_id][RESULT]
            ]
        else:
            arguments = self._xcoms[expanded.operator.task_id][RESULT]
        mapped = [one for one in self.mapped if one.task_id == task.task_id]
        for number in range(len(mapped), len(arguments)):
            mapped.append(FlowTries(self._emulator, whole.dag, f"{task.task_id}[{number}]", self._xcoms))
            mapped[-1].task_id = task.task_id
            self.mapped.append(mapped[-1])
        for tries, values in zip(mapped, arguments, strict=False):
            if tries.state != "success":
                if tries.number:
                    tries.clear()
                run_task(tries, functools.partial(task.unmap, values), self._most)
        ends = {tries.state for tries in mapped[: len(arguments)]}
        whole.state = "success" if ends <= {"success"} else "failed"


@functools.cache
def _environment(dag: DAG) -> Any:
    """Return the environment in which Airflow renders the templates of a DAG, which compiles each text once."""
    environment = dag.get_template_env()
    environment.from_string = functools.cache(environment.from_string)  # type: ignore[method-assign]
    return environment
