"""A ramp as one page of HTML with plots, which loads nothing."""

import html
from collections.abc import Sequence
from typing import Any

__all__ = ["write_page"]

_PLOTS = {
    "requests_per_second": "Requests a second",
    "p95_ms": "p95 latency, ms",
    "first_p95_ms": "p95 of the first piece, ms",
    "errors": "Share of errors",
    "cpu": "Cores of the gateway",
}
_WIDTH, _HEIGHT = 520, 180


def write_page(report: dict[str, Any]) -> str:
    """Return the page."""
    stages = report["stages"]
    plots = "".join(f"<h2>{title}</h2>{_plot(stages, name)}" for name, title in _PLOTS.items())
    rows = "".join(f"<tr>{''.join(f'<td>{value}</td>' for value in stage.values())}</tr>" for stage in stages)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in stages[0])
    ended = f"ended by {report['broken']}" if report["broken"] else "no threshold broke"
    style = "body{font:15px system-ui;margin:2rem;color-scheme:light dark}td,th{padding:.2rem .7rem;text-align:right}"
    return (
        f'<!doctype html><meta charset="utf-8"><title>Gateway ramp</title><style>{style}</style>'
        f"<h1>Gateway ramp: {ended}</h1><table><tr>{head}</tr>{rows}</table>{plots}"
    )


def _plot(stages: Sequence[dict[str, Any]], name: str) -> str:
    values = [float(stage[name]) for stage in stages]
    top = max(values) or 1.0
    step = _WIDTH / max(1, len(values) - 1)
    points = [(i * step, _HEIGHT - value / top * _HEIGHT) for i, value in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    labels = "".join(
        f'<text x="{x:.0f}" y="{_HEIGHT + 16}" text-anchor="middle">{stage["callers"]}</text>'
        for (x, _), stage in zip(points, stages, strict=True)
    )
    box = f"-50 -15 {_WIDTH + 100} {_HEIGHT + 40}"
    return (
        f'<svg width="{_WIDTH + 100}" viewBox="{box}" font-size="11" fill="currentColor">'
        f'<polyline points="{line}" fill="none" stroke="#27c" stroke-width="2"/>'
        f'<text x="-6" y="4" text-anchor="end">{top:g}</text>{labels}</svg>'
    )
