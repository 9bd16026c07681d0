"""Writes the Grafana board: `python -m deploy.monitoring.grafana.board`. Change it here, not in the JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

__all__ = ["ROWS", "Panel", "board", "main", "packed"]

FILE = Path(__file__).parent / "dashboards" / "stoop.json"

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 24, 8

Query = tuple[str, str]
"""An expression and the legend of its lines."""


@dataclass(frozen=True)
class Panel:
    """One panel: its title, Grafana's unit and type, and its queries."""

    title: str
    unit: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    stacked: bool = False

    @property
    def width(self) -> int:
        """The columns that it takes, of 24."""
        return 4 if self.kind == "stat" else 8


def _rate(metric: str, selector: str = "") -> str:
    return f"rate({metric}{{{selector}}}[$__rate_interval])"


def _quantiles(metric: str, by: str, selector: str) -> list[Query]:
    inner = f"sum by (le, {by}) ({_rate(f'{metric}_bucket', selector)})"
    return [(f"histogram_quantile({q / 100}, {inner})", f"{{{{{by}}}}} p{q}") for q in (50, 95, 99)]


_LANE, _WORKER = 'lane=~"$lane"', 'instance=~"$worker"'
_BOTH = f"{_LANE},{_WORKER}"
_FAILED = _rate("stoop_jobs_settled_total", f'{_WORKER},outcome=~"failed|dead"')
_SETTLED = _rate("stoop_jobs_settled_total", _WORKER)
_IMAGE_STAGES = f'{_WORKER},stage=~"fetch|image"'
_STEPS = "stoop_engine_step_seconds"


def _by(label: str, expression: str) -> Query:
    return f"sum by ({label}) ({expression})", f"{{{{{label}}}}}"


def _slowest(metric: str) -> Query:
    return f"histogram_quantile(0.95, sum by (le, route) ({_rate(f'{metric}_bucket')}))", "{{route}}"


def _ratio(part: str, whole: str) -> str:
    return f"sum({_rate(part, _WORKER)}) / sum({_rate(whole, _WORKER)})"


ROWS: dict[str, Sequence[Panel]] = {
    "Is anything wrong": (
        Panel("Workers", "short", [("sum(stoop_workers)", "")], "stat"),
        Panel("Oldest waiting job", "s", [(f"max(stoop_queue_oldest_seconds{{{_LANE}}})", "")], "stat"),
        Panel("Failures", "percentunit", [(f"(sum({_FAILED}) or vector(0)) / sum({_SETTLED})", "")], "stat"),
        Panel("Dead letters in an hour", "short", [("sum(increase(stoop_jobs_dead_total[1h]))", "")], "stat"),
        Panel("Engine faults in an hour", "short", [("sum(increase(stoop_engine_faults_total[1h]))", "")], "stat"),
        Panel("Redis reached", "bool_yes_no", [("min(stoop_redis_up)", "")], "stat"),
    ),
    "Queue": (
        Panel("Waiting", "short", [_by("lane", f"stoop_queue_waiting{{{_LANE}}}")]),
        Panel(
            "In flight", "short", [_by("lane", f"stoop_queue_in_flight{{{_LANE}}}"), ("sum(stoop_permits)", "permits")]
        ),
        Panel("Oldest waiting job", "s", [(f"max by (lane) (stoop_queue_oldest_seconds{{{_LANE}}})", "{{lane}}")]),
        Panel("Ended", "ops", [_by("state", _rate("stoop_jobs_ended_total"))]),
        Panel(
            "Retries, takeovers, dead letters",
            "ops",
            [
                (f"sum({_rate('stoop_jobs_retried_total')})", "retries"),
                (f"sum({_rate('stoop_jobs_reclaimed_total')})", "takeovers"),
                (f"sum({_rate('stoop_jobs_dead_total')})", "dead letters"),
            ],
        ),
        Panel(
            "Set aside",
            "short",
            [
                ("sum(stoop_queue_delayed)", "delayed"),
                _by("kind", "stoop_queue_quarantined"),
                ("sum(stoop_queue_dead)", "dead letters"),
                (f"sum(stoop_queue_paused{{{_LANE}}})", "paused lanes"),
                (f"sum(stoop_queue_served{{{_LANE}}})", "served lanes"),
            ],
        ),
        Panel("Tenants", "short", [_by("tenant", f"stoop_queue_tenant_jobs{{{_LANE}}}")]),
    ),
    "Latency": (
        Panel("From queueing to the end", "s", _quantiles("stoop_job_seconds", "lane", _BOTH)),
        Panel("Waiting", "s", _quantiles("stoop_queue_seconds", "lane", _BOTH)),
        Panel("First token", "s", _quantiles("stoop_time_to_first_token_seconds", "skill", _BOTH)),
        Panel("Each token after the first", "s", _quantiles("stoop_time_per_output_token_seconds", "skill", _WORKER)),
        Panel(
            "Where the time goes (means)",
            "s",
            [
                (
                    f"sum by (stage) ({_rate('stoop_stage_seconds_sum', _WORKER)})"
                    f" / sum by (stage) ({_rate('stoop_stage_seconds_count', _WORKER)})",
                    "{{stage}}",
                )
            ],
            stacked=True,
        ),
    ),
    "Engine": (
        Panel(
            "Requests",
            "short",
            [
                (f"sum(stoop_engine_waiting{{{_WORKER}}})", "waiting"),
                (f"sum(stoop_engine_running{{{_WORKER}}})", "running"),
                (f"sum(stoop_jobs_in_flight{{{_WORKER}}})", "jobs in flight"),
            ],
        ),
        Panel(
            "Requests in a step",
            "short",
            [(f"sum by (le) ({_rate('stoop_engine_batch_sequences_bucket', _WORKER)})", "{{le}}")],
            "heatmap",
        ),
        Panel(
            "Time of a step, p95",
            "s",
            [
                (
                    f"histogram_quantile(0.95, sum by (le, kind) ({_rate(f'{_STEPS}_bucket', _WORKER)}))",
                    "{{kind}}",
                )
            ],
        ),
        Panel("Share of time in steps", "percentunit", [_by("kind", _rate(f"{_STEPS}_sum", _WORKER))], stacked=True),
        Panel("Steps", "ops", [_by("instance", _rate("stoop_engine_steps_total", _WORKER))]),
        Panel("Tokens of answers", "ops", [_by("kind", _rate("stoop_tokens_total", _WORKER))]),
        Panel(
            "Tokens computed",
            "ops",
            [
                (f"sum({_rate('stoop_engine_prefill_tokens_total', _WORKER)})", "prefill"),
                (f"sum({_rate('stoop_engine_decode_tokens_total', _WORKER)})", "decode"),
            ],
        ),
        Panel(
            "Pages of KV cache",
            "short",
            [
                (f"sum(stoop_engine_pages_used{{{_WORKER}}})", "used"),
                (f"sum(stoop_engine_pages_idle{{{_WORKER}}})", "only cached"),
                (f"sum(stoop_engine_pages{{{_WORKER}}})", "all"),
            ],
        ),
        Panel(
            "Hits of the prefix cache",
            "percentunit",
            [
                (_ratio("stoop_engine_cached_tokens_total", "stoop_engine_input_tokens_total"), "tokens"),
                (_ratio("stoop_engine_image_hits_total", "stoop_engine_finished_total"), "images"),
            ],
        ),
        Panel(
            "Interruptions",
            "ops",
            [
                (f"sum({_rate('stoop_engine_preemptions_total', _WORKER)})", "preempted"),
                (f"sum({_rate('stoop_engine_aborted_total', _WORKER)})", "aborted"),
                (f"sum({_rate('stoop_engine_refused_total', _WORKER)})", "refused"),
                (f"sum({_rate('stoop_engine_faults_total', _WORKER)})", "faults"),
            ],
        ),
    ),
    "Images": (
        Panel("Fetched", "Bps", [_by("instance", _rate("stoop_fetch_bytes_total", _WORKER))]),
        Panel(
            "Fetching and decoding, p95",
            "s",
            [
                (
                    "histogram_quantile(0.95, sum by (le, stage)"
                    f" ({_rate('stoop_stage_seconds_bucket', _IMAGE_STAGES)}))",
                    "{{stage}}",
                )
            ],
        ),
        Panel("Not fetched", "ops", [_by("code", _rate("stoop_fetch_failures_total", _WORKER))]),
        Panel(
            "Encoded",
            "ops",
            [
                (f"sum({_rate('stoop_engine_images_encoded_total', _WORKER)})", "images"),
                (f"sum({_rate('stoop_engine_crops_encoded_total', _WORKER)})", "crops"),
            ],
        ),
    ),
    "Failures": (
        Panel("Deliveries by outcome", "ops", [_by("outcome", _SETTLED)]),
        Panel("Failures by code", "ops", [_by("code", _rate("stoop_jobs_settled_total", f'{_WORKER},code!=""'))]),
        Panel("Answers discarded", "ops", [_by("instance", _rate("stoop_jobs_lost_lease_total", _WORKER))]),
    ),
    "Gateway": (
        Panel(
            "Requests",
            "reqps",
            [(f"sum by (route, status) ({_rate('stoop_http_requests_total')})", "{{status}} {{route}}")],
        ),
        Panel("From request to status, p95", "s", [_slowest("stoop_http_first_byte_seconds")]),
        Panel("From request to the end, p95", "s", [_slowest("stoop_http_request_seconds")]),
        Panel("Open streams", "short", [("sum(stoop_http_streams)", "streams")]),
        Panel("Refused by limits", "reqps", [_by("kind", _rate("stoop_http_limited_total"))]),
    ),
    "Redis and versions": (
        Panel("Memory", "bytes", [("stoop_redis_memory_bytes", "used")]),
        Panel("Share of maxmemory", "percentunit", [("stoop_redis_memory_ratio", "used")]),
        Panel("Time to read the queue", "s", [("stoop_queue_read_seconds", "read")]),
        Panel("Versions", "short", [("stoop_build_info", "")], "table"),
    ),
}
"""The panels of each row."""


def board() -> dict[str, Any]:
    """Return the board as Grafana imports it."""
    return {
        "uid": "stoop",
        "title": "Stoop",
        "tags": ["stoop"],
        "timezone": "browser",
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(_panels()),
    }


def _variables() -> list[dict[str, Any]]:
    lists = {
        "lane": "label_values(stoop_queue_waiting, lane)",
        "model": 'label_values(stoop_build_info{process="worker"}, model)',
        "worker": 'label_values(stoop_build_info{process="worker",model=~"$model"}, instance)',
    }
    queries = [
        {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": query,
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "current": {"text": "All", "value": "$__all"},
        }
        for name, query in lists.items()
    ]
    return [{"name": "datasource", "type": "datasource", "query": "prometheus"}, *queries]


def _panels() -> Iterator[dict[str, Any]]:
    numbers, top = count(1), 0
    for title, panels in ROWS.items():
        yield {"id": next(numbers), "type": "row", "title": title, "gridPos": _place(0, top, _WIDTH, 1), "panels": []}
        top += 1
        left = 0
        for panel in panels:
            height = 4 if panel.kind == "stat" else _HEIGHT
            if left + panel.width > _WIDTH:
                left, top = 0, top + height
            yield _panel(panel, next(numbers)) | {"gridPos": _place(left, top, panel.width, height)}
            left += panel.width
        top += height


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": custom}, "overrides": []},
        "targets": [_target(panel, *query, letter) for query, letter in zip(panel.queries, "ABCDEF", strict=False)],
    }


def _target(panel: Panel, expression: str, legend: str, letter: str) -> dict[str, Any]:
    shape = {"heatmap": "heatmap", "table": "table"}.get(panel.kind, "time_series")
    at_once = panel.kind in ("stat", "table")
    return {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": expression,
        "legendFormat": legend,
        "format": shape,
        "instant": at_once,
        "range": not at_once,
    }


def packed() -> str:
    """Return the text of the JSON file."""
    return json.dumps(board(), indent=1) + "\n"


def main() -> None:
    """Write the JSON file."""
    FILE.write_text(packed(), encoding="utf-8")


if __name__ == "__main__":
    main()
