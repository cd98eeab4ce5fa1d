"""The page on monitoring and the dashboard say what is declared, and query what is emitted."""

from __future__ import annotations

import json
import re

from airflow_provider_mail import _metrics
from docs import monitoring

DASHBOARD = json.loads((monitoring.PAGE.parent / "grafana" / "mail.json").read_text())
DECLARED = {f"airflow_{metric.name.replace('.', '_')}": metric for metric in _metrics.METRICS}
SELECTOR = re.compile(r'\{__name__=~"(\w+)\(_total\)\?"(?:, (\w+)=~"\$(\w+)")?\}')


TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_the_page_shows_the_declared_metrics() -> None:
    page = monitoring.PAGE.read_text()
    assert page == monitoring.filled(page), "run: python docs/monitoring.py"
    assert all("|" not in metric.meaning for metric in _metrics.METRICS)


def test_every_metric_is_declared_once() -> None:
    metrics = [value for value in vars(_metrics).values() if isinstance(value, _metrics.Metric)]
    assert sorted(metrics) == sorted(_metrics.METRICS)
    assert len(DECLARED) == len(metrics)


def test_panels_query_what_is_emitted_and_all_of_it() -> None:
    queried = set()
    for target in TARGETS:
        selectors = SELECTOR.findall(target["expr"])
        assert len(selectors) == target["expr"].count("{")
        grouped = set(re.findall(r"by \((\w+)\)", target["expr"]))
        for name, label, variable in selectors:
            assert label == variable
            assert {label, *grouped} <= {"", *DECLARED[name].tags}
            queried.add(name)
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) == grouped
    assert queried == DECLARED.keys()


def test_variables_are_those_that_the_queries_have() -> None:
    used = set(re.findall(r"\$\{?([a-z]\w+)", json.dumps(DASHBOARD["panels"])))
    assert used == {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    for variable in DASHBOARD["templating"]["list"][1:]:
        prefix, names = re.findall(r'"(\w+?)_(?:\(([\w|]+)\)|requests)\(_total\)\?"', variable["query"]["query"])[0]
        for name in (names or "requests").split("|"):
            assert variable["name"] in DECLARED[f"{prefix}_{name}"].tags
