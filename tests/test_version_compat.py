"""What is used of Airflow that is not public: each test fails when Airflow changes it."""

from __future__ import annotations

import ast
import gc
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.sql.hooks.sql import DbApiHook
from airflow.providers.mysql.hooks.mysql import MySqlHook
from airflow.providers.postgres.hooks.postgres import PostgresHook
from airflow.providers.sqlite.hooks.sqlite import SqliteHook
from airflow.sdk import DAG, BaseOperator, Connection
from airflow.sdk.bases.operator import OperatorPartial
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import CommsDecoder

from airflow_provider_mail import version_compat
from tests.tasks.everything import OPERATORS

STORED = Connection(conn_id="stored", conn_type="any", host="stored.example.com", schema="stored")
USED = Connection(conn_id="used", conn_type="any", host="used.example.com", schema=":memory:")


class Operator(version_compat.RendersFields, BaseOperator):
    template_fields = ("name",)

    def __init__(self, *, name: Any, **kwargs: Any) -> None:
        self.from_mapped = version_compat.is_from_mapped(self)
        super().__init__(**kwargs)
        self.name = name

    def render_fields(self, names: Any, context: Any, jinja_env: Any, seen_oids: set[int]) -> None:
        self.rendered = [f"{name}={self.render_template(getattr(self, name), context, jinja_env)}" for name in names]


def test_a_task_renders_its_own_fields() -> None:
    with DAG("d", schedule=None):
        operator = Operator(task_id="t", name="{{ value }}")
    operator.render_template_fields({"value": "v"})  # type: ignore[typeddict-item]
    assert operator.rendered == ["name=v"]


def test_a_task_renders_each_text_itself() -> None:
    class Shouting(Operator):
        def render_one(self, template: Any, context: Any, dag: Any) -> Any:
            return super().render_one(template, context, dag).upper()

    with DAG("d", schedule=None):
        operator = Shouting(task_id="t", name=["{{ value }}"])
    operator.render_template_fields({"value": "v"})  # type: ignore[typeddict-item]
    assert operator.rendered == ["name=['V']"]


@pytest.mark.parametrize("kind", OPERATORS.values())
def test_no_other_class_has_a_private_name_of_airflow(kind: type) -> None:
    def private(package: str) -> set[str]:
        bases = [base for base in kind.__mro__ if base.__module__.startswith(package)]
        names = {name for base in bases if base.__module__ != version_compat.__name__ for name in vars(base)}
        # Airflow itself keeps in a class of ours what it has serialized, under a name with two underscores inside.
        return {name for name in names if name.startswith("_") and not name.startswith("_abc_") and "__" not in name}

    assert private("airflow_provider_mail.") & private("airflow.") == set()


def test_values_with_template_fields_are_rendered_by_airflow() -> None:
    class Value:
        template_fields = ("text",)
        text = "{{ value }}"

    with DAG("d", schedule=None):
        operator = Operator(task_id="t", name=Value())
    operator.render_template_fields({"value": "v"})  # type: ignore[typeddict-item]
    assert operator.name.text == "v"


def test_an_operator_knows_that_it_was_mapped() -> None:
    with DAG("d", schedule=None):
        mapped = Operator.partial(task_id="mapped").expand(name=["a"])
        plain = Operator(task_id="plain", name="a")
    assert not plain.from_mapped
    assert mapped.unmap({"name": "a"}).from_mapped


@pytest.mark.parametrize("marked", [False, True])
def test_what_partial_returns_warns_unless_it_was_mapped(marked: bool) -> None:
    partial = OperatorPartial(operator_class=Operator, kwargs={"task_id": "t"}, params={})
    if marked:
        version_compat.mark_expanded(partial)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del partial
        gc.collect()
    assert any("never mapped" in str(warning.message) for warning in caught) is not marked


def test_a_task_asks_its_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(task_runner, "SUPERVISOR_COMMS", raising=False)
    assert version_compat.ask_supervisor() is None
    assert "SUPERVISOR_COMMS" in task_runner.__annotations__
    comms = CommsDecoder.__new__(CommsDecoder)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", comms, raising=False)
    assert version_compat.ask_supervisor() == comms.send


@pytest.mark.skipif(not version_compat.AIRFLOW_V_3_1_PLUS, reason="Airflow 3.0 always looks into its database")
def test_a_server_looks_into_airflow_s_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(task_runner, "SUPERVISOR_COMMS", raising=False)
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "")
    load = supervisor.ensure_secrets_backend_loaded
    assert ["MetastoreBackend" in map(name_of, load()), version_compat.knows_variables()] == [False, False]
    version_compat.act_as_server()
    assert ["MetastoreBackend" in map(name_of, load()), version_compat.knows_variables()] == [True, True]


def name_of(thing: Any) -> str:
    return type(thing).__name__


def test_the_state_store_is_used_by_one_thread_at_a_time() -> None:
    class Store:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_, **__: calls.append((name, version_compat.ASKING.locked()))

    calls: list[tuple[str, bool]] = []
    store = version_compat.state_store({"task_state_store": Store()})
    assert store is not None
    store.get("key")
    store.set("key", 1, retention=None)
    store.delete("key")
    assert calls == [("get", True), ("set", True), ("delete", True)]
    assert version_compat.state_store({}) is None


@pytest.mark.parametrize("kind", [MySqlHook, PostgresHook, SqliteHook])
def test_a_hook_uses_the_connection_that_it_is_given(kind: type[DbApiHook], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "get_connection", staticmethod(lambda conn_id: STORED))
    hook = kind()
    assert hook.connection is STORED
    version_compat.use_connection(hook, USED)
    assert hook.connection is USED
    assert hook.get_connection("stored") is USED
    assert "used.example.com" in hook.get_uri() or ":memory:" in hook.get_uri()


def test_mysql_passes_further_options_to_both_drivers() -> None:
    hook = MySqlHook()
    version_compat.use_connection(hook, USED)
    for method in ("_get_conn_config_mysql_client", "_get_conn_config_mysql_connector_python"):
        version_compat.extend_driver_options(hook, method, {"added": 7})
        options = getattr(hook, method)(USED)
        assert options["added"] == 7
        assert options["host"] == "used.example.com"


def test_a_method_that_the_hook_lacks_is_left_out() -> None:
    hook = SqliteHook()
    version_compat.extend_driver_options(hook, "_get_conn_config_mysql_client", {"added": 7})
    assert not hasattr(hook, "_get_conn_config_mysql_client")


OUTSIDE_THE_SDK = {
    # Public, but not in airflow.sdk.
    "airflow.plugins_manager": {"AirflowPlugin"},
    "airflow.triggers.base": {"BaseEventTrigger", "BaseTrigger", "TriggerEvent"},
    "airflow.api_fastapi.app": {"get_auth_manager"},
    "airflow.api_fastapi.auth.managers.base_auth_manager": {"COOKIE_NAME_JWT_TOKEN"},
    "airflow.api_fastapi.auth.managers.models.resource_details": {"AccessView", "DagDetails"},
    "airflow.cli.cli_config": {"ARG_OUTPUT", "ActionCommand", "Arg", "CLICommand", "GroupCommand", "lazy_load_command"},
    "airflow.cli.simple_table": {"AirflowConsole"},
    # The user of a request; the dependency that FastAPI applications of Airflow use has no public name.
    "airflow.api_fastapi.core_api.security": {"get_user"},
    # Airflow's database, in the API server and in commands. The REST API needs the user's token, and has no triggers.
    "airflow.utils.session": {"create_session"},
    "airflow.utils.state": {"TaskInstanceState"},
    "airflow.models": {"Connection"},
    "airflow.models.serialized_dag": {"SerializedDagModel"},
    "airflow.models.taskinstance": {"TaskInstance"},
    "airflow.models.team": {"Team"},
    "airflow.models.trigger": {"Trigger"},
    "airflow.models.hitl": {"HITLDetail"},
    "airflow.models.variable": {"Variable"},
    "airflow.jobs.job": {"most_recent_job"},
}
"""What the package imports of Airflow beside ``airflow.sdk`` and `version_compat`."""

EXISTS = {
    "airflow.models.team": version_compat.AIRFLOW_V_3_2_PLUS,
    "airflow.models.hitl": version_compat.AIRFLOW_V_3_1_PLUS,
}


def test_what_is_imported_beside_the_sdk_is_listed_and_exists() -> None:
    package = Path(version_compat.__file__).parent
    used: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            public = module == "airflow" or module.startswith(("airflow.sdk", "airflow.providers"))
            if module.startswith("airflow") and not module.startswith("airflow_provider_mail") and not public:
                used.setdefault(module, set()).update(alias.name for alias in node.names)
    assert used == OUTSIDE_THE_SDK
    for module, names in used.items():
        if EXISTS.get(module, True):
            assert all(hasattr(import_module(module), name) for name in names), module
