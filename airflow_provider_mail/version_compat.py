"""Airflow's version, names whose module differs between versions, and what is used of Airflow that is not public.

Of the latter nothing is elsewhere in the package. Each function says which public way was tried, and
``tests/test_version_compat.py`` fails when Airflow changes what it uses.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow import __version__

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import (
        AirflowException as AirflowException,
    )
    from airflow.providers.common.compat.sdk import (
        AirflowFailException as AirflowFailException,
    )
    from airflow.providers.common.compat.sdk import (
        AirflowNotFoundException as AirflowNotFoundException,
    )
    from airflow.providers.common.compat.sdk import (
        AirflowSensorTimeout as AirflowSensorTimeout,
    )
    from airflow.providers.common.compat.sdk import (
        AirflowSkipException as AirflowSkipException,
    )
    from airflow.providers.common.compat.sdk import (
        BaseHook as BaseHook,
    )
    from airflow.providers.common.compat.sdk import (
        Stats as Stats,
    )
    from airflow.providers.common.compat.sdk import (
        XCom as XCom,
    )
    from airflow.providers.common.compat.sdk import (
        conf as conf,
    )
    from airflow.providers.common.compat.sdk import (
        mask_secret as mask_secret,
    )
    from airflow.providers.common.compat.sdk import (
        redact as redact,
    )
    from airflow.providers.common.sql.hooks.sql import DbApiHook
    from airflow.sdk import Context

_VERSION = tuple(int(part) for part in __version__.split(".")[:2])

AIRFLOW_V_3_1_PLUS = _VERSION >= (3, 1)
AIRFLOW_V_3_2_PLUS = _VERSION >= (3, 2)
AIRFLOW_V_3_3_PLUS = _VERSION >= (3, 3)

_EXCEPTIONS = ("airflow.sdk.exceptions", "airflow.exceptions")
_MASKER = ("airflow.sdk.log", "airflow.sdk._shared.secrets_masker", "airflow.sdk.execution_time.secrets_masker")
_HOMES = {
    "AirflowException": _EXCEPTIONS,
    "AirflowFailException": _EXCEPTIONS,
    "AirflowNotFoundException": _EXCEPTIONS,
    "AirflowSensorTimeout": _EXCEPTIONS,
    "AirflowSkipException": _EXCEPTIONS,
    "BaseHook": ("airflow.sdk", "airflow.hooks.base"),
    # Since Airflow 3.2, `airflow.stats` is deprecated, and tasks have their own copy.
    "Stats": ("airflow.sdk.observability.stats", "airflow.stats"),
    "XCom": ("airflow.sdk.execution_time.xcom", "airflow.models.xcom"),
    "conf": ("airflow.sdk.configuration", "airflow.configuration"),
    "mask_secret": _MASKER,
    "redact": _MASKER,
}
"""Modules to try when `common.compat` lacks a name: its releases in the published constraints of Airflow 3.0
have no `sdk` module, and those of 3.1 and 3.2 lack some names."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module in ("airflow.providers.common.compat.sdk", *_HOMES[name]):
        try:
            value = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
        globals()[name] = value
        return value
    raise ImportError(f"{name}: not found in Airflow {__version__}")


class RendersFields:
    """Base of classes that render their own template fields one by one.

    Public is ``render_template_fields(context, jinja_env)``, but Airflow does not call it for a mapped task: there it
    creates the operator and calls ``_do_render_template_fields``. Public ``render_template`` does not learn the field's
    name, and calls ``_render`` for each text, also inside of lists and dictionaries.
    """

    def render_fields(self, names: Iterable[str], context: Any, jinja_env: Any, seen_oids: set[int]) -> None:
        """Render the template fields of these names.

        :param seen_oids: what Airflow passes from one call of ``render_template`` to the next.
        """
        raise NotImplementedError

    def render_one(self, template: Any, context: Any, dag: Any) -> Any:
        """Render one text, by default as Airflow does.

        :param template: Jinja's.
        """
        return super()._render(template, context, dag)  # type: ignore[misc]

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Any, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        if parent is self:
            self.render_fields(template_fields, context, jinja_env, seen_oids)
        else:  # a value that has template fields of its own
            super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)  # type: ignore[misc]

    def _render(self, template: Any, context: Any, dag: Any = None) -> Any:
        return self.render_one(template, context, dag)


def is_from_mapped(operator: Any) -> bool:
    """Return whether Airflow creates the operator out of a mapped one, also while its ``__init__`` runs.

    Public ``map_index`` belongs to the task instance, which ``__init__`` does not know.
    """
    return getattr(operator, "_BaseOperator__from_mapped", False)


def mark_expanded(partial: Any) -> None:
    """Prevent Airflow's warning that the result of ``partial`` was never mapped.

    There is no public way: ``expand`` itself notes it, after the checks that may raise.
    """
    partial._expand_called = True


ASKING = threading.Lock()
"""Held by a thread of ours that asks Airflow's API server, beside others of a task: Airflow 3.0, and ``dag.test()`` of
every version, mix up the responses to two questions at a time."""


class StateStore:
    """Airflow's task state store, used by one thread at a time."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, key: str) -> Any:
        with ASKING:
            return self._store.get(key, None)

    def set(self, key: str, value: Any, *, retention: Any) -> None:
        with ASKING:
            self._store.set(key, value, retention=retention)

    def delete(self, key: str) -> None:
        with ASKING:
            self._store.delete(key)


def state_store(context: Context) -> StateStore | None:
    """Return the task state store of a task instance; ``None`` before Airflow 3.3."""
    store: Any = context.get("task_state_store")
    return None if store is None else StateStore(store)


def ask_supervisor() -> Callable[[Any], Any] | None:
    """Return the function with which a task asks Airflow's API server; ``None`` outside of a task.

    Public ``Variable.get`` does not say whether a Variable is not set or could not be read.
    """
    task_runner = sys.modules.get("airflow.sdk.execution_time.task_runner")
    comms = getattr(task_runner, "SUPERVISOR_COMMS", None)
    return None if comms is None else comms.send


_PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"


def act_as_server() -> None:
    """Let this process look up connections in Airflow's database, as Airflow's own commands do.

    There is no public way: Airflow 3.1 and later look there only if this variable of the environment says so.
    """
    os.environ[_PROCESS_CONTEXT] = "server"


def knows_variables() -> bool:
    """Return whether this process is a task or a server of Airflow, and not, for instance, a unit test."""
    return ask_supervisor() is not None or os.environ.get(_PROCESS_CONTEXT) == "server"


def stored_variable(name: str) -> str | None:
    """Return a Variable in Airflow's database: a task asks the API server, other processes the database.

    :raises Exception: Airflow's error when it cannot be read.
    """
    if (send := ask_supervisor()) is not None:
        return _read_as_task(send, name)
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        stored = session.scalar(select(Variable).where(Variable.key == name))
        return None if stored is None else str(stored.get_val())


def _read_as_task(send: Callable[[Any], Any], name: str) -> str | None:
    """Read a Variable; unlike ``Variable.get``, which since Airflow 3.1 takes a failure to read for "not set"."""
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.comms import ErrorResponse, GetVariable

    try:
        response = send(GetVariable(key=name))
    except AirflowRuntimeError as error:
        response = error.error
    if not isinstance(response, ErrorResponse):
        return str(response.value)
    if response.error is ErrorType.VARIABLE_NOT_FOUND:
        return None
    raise AirflowRuntimeError(response)


def store_variable(name: str, text: str, description: str) -> None:
    """Store a Variable, with the class that writes them in this process."""
    variable: Any
    if ask_supervisor() is not None:
        from airflow.sdk import Variable as variable
    else:
        from airflow.models.variable import Variable as variable
    variable.set(name, text, description=description)


def serialized_tasks(dag_id: str) -> list[dict[str, Any]]:
    """Return the tasks of a DAG as Airflow's database has them: their module and the fields that are templates.

    Public ``airflow dags`` commands and the API show neither arguments nor modules, and reading the DAG's file runs it.
    """
    from airflow.models.serialized_dag import SerializedDagModel

    row = SerializedDagModel.get(dag_id)
    data = row.data if row else None
    return [task["__var"] for task in data["dag"]["tasks"]] if data else []


def use_connection(hook: DbApiHook, connection: Any) -> None:
    """Let a hook use this connection instead of reading the one that it is named after.

    Public is the argument ``connection`` of ``DbApiHook``, but SQLite's hook ignores it, and a hook that exists has
    its other arguments already. Setting ``hook.connection`` has no effect.
    """
    # Hooks read either one: SQLite's calls the method each time.
    hook.__dict__.update(_connection=connection, get_connection=lambda conn_id: connection)


def extend_driver_options(hook: DbApiHook, method: str, options: dict[str, Any]) -> None:
    """Let MySQL's hook pass further options to a driver, if it has the method.

    Public is the connection's ``extra``, of which the hook passes on only what it knows, and no time limits.

    :param method: returns the options for a driver, such as ``_get_conn_config_mysql_client``.
    """
    if original := getattr(hook, method, None):
        setattr(hook, method, lambda connection: {**options, **original(connection)})
