"""The board, the alerts and their pages speak of metrics that exist; promtool runs each alert's cases."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import promql_parser
import pytest
import yaml

from deploy.monitoring.grafana import board
from tests.project.modules import ROOT
from tests.support.exposed import exposed_by_exporter, exposed_by_gateway, exposed_by_parent, exposed_by_worker

FOLDER = ROOT / "deploy" / "monitoring"
PROMTOOL = shutil.which("promtool")
ALERTS = yaml.safe_load((FOLDER / "alerts.yml").read_text())
CASES = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
BY_NAME = {rule["alert"]: rule for rule in RULES if "alert" in rule}
PAGES = sorted((FOLDER / "runbook").glob("*.md"))
SHOWN = {
    f"{panel.title}: {expression}": expression
    for panels in board.ROWS.values()
    for panel in panels
    for expression, _ in panel.queries
}
EXPRESSIONS = {**{rule.get("alert", rule.get("record")): rule["expr"] for rule in RULES}, **SHOWN}

EXPOSED = exposed_by_exporter()
for process in (exposed_by_gateway, exposed_by_worker, exposed_by_parent):
    for exposed_name, exposed_labels in process().items():
        EXPOSED.setdefault(exposed_name, set()).update(exposed_labels)
RECORDED: dict[str, set[str]] = {rule["record"]: set() for rule in RULES if "record" in rule}
TARGET = {"instance", "job"}  # every sample gets these from the scrape


def in_prometheus(expression: str) -> str:
    """The query that Prometheus receives, once Grafana has filled in its variables."""
    return re.sub(r"\$(lane|worker|model)", ".*", expression).replace("$__rate_interval", "1m")


def selectors(node: Any) -> Iterator[Any]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    if isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector
    children = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "param")]
    for child in (*children, *(getattr(node, "args", None) or ())):
        if isinstance(child, promql_parser.Expr):
            yield from selectors(child)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_names_metrics_and_labels_that_exist(name: str) -> None:
    expression = in_prometheus(EXPRESSIONS[name])
    found = list(selectors(promql_parser.parse(expression)))
    assert found
    known = EXPOSED | RECORDED
    for selector in found:
        assert selector.name in known
        assert {matcher.name for matcher in selector.matchers.matchers} <= known[selector.name] | TARGET
    grouped = {label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(", ")}
    assert grouped <= set().union(*(known[selector.name] for selector in found)) | TARGET


def test_an_expression_is_searched_to_its_leaves() -> None:
    nested = promql_parser.parse(
        '1 - (sum by (a) (rate(one_total[5m])) or vector(0)) / max_over_time(two{b="c"}[1h:1m])'
    )
    assert [selector.name for selector in selectors(nested)] == ["one_total", "two"]


def test_each_alert_has_a_page_and_each_page_an_alert() -> None:
    assert [page.stem for page in PAGES] == sorted(BY_NAME)
    for name, rule in BY_NAME.items():
        assert rule["annotations"]["runbook"] == f"deploy/monitoring/runbook/{name}.md"
        assert rule["labels"]["severity"] in ("page", "ticket")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_a_title_an_effect_and_steps(page: Any) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem}\n\n")
    assert "**Effect.** " in text
    assert re.search(r"^1\. ", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", BY_NAME)
def test_each_alert_has_a_case_that_fires_and_one_that_is_silent(name: str) -> None:
    tests = [test for case in CASES for test in case["alert_rule_test"] if test["alertname"] == name]
    assert {bool(test["exp_alerts"]) for test in tests} == {True, False}


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on this machine: Debian has it in prometheus")
@pytest.mark.parametrize(
    "check",
    [
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
        ("check", "config", "prometheus.yml"),
        ("check", "config", "prometheus-host.yml"),
    ],
)
def test_promtool_agrees(check: tuple[str, ...]) -> None:
    done = subprocess.run([str(PROMTOOL), *check], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_boards_file_is_in_step() -> None:
    assert board.FILE.read_text(encoding="utf-8") == board.packed(), "run python -m deploy.monitoring.grafana.board"


def test_no_panel_overlaps_another() -> None:
    panels = json.loads(board.packed())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(panel["title"], panel["gridPos"]) for panel in panels]
    for (one, a), (other, b) in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (one, other)
    assert all(place["x"] + place["w"] <= 24 for _, place in places)


def test_grafanas_files_are_at_their_configured_paths() -> None:
    [source] = yaml.safe_load((FOLDER / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    [provider] = yaml.safe_load((FOLDER / "grafana/provisioning/dashboards/stoop.yml").read_text())["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"


def test_the_page_lists_every_metric() -> None:
    listed = set(
        re.findall(r"^\| `(stoop_\w+)`", (FOLDER / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    assert listed == {re.sub(r"_(bucket|sum|count)$", "", name) for name in EXPOSED}
