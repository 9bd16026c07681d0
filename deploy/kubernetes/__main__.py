"""Writes the alerts for a Prometheus Operator: `python -m deploy.kubernetes`."""

from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["ALERTS", "as_resource"]

_HERE = Path(__file__).parent
_HEAD = "# Written by `python -m deploy.kubernetes` from ../../monitoring/alerts.yml.\n"

ALERTS: Final = _HERE / "monitoring" / "alerts.yaml"
"""The file that is written."""


def as_resource(rules: dict[str, Any]) -> str:
    """Return Prometheus's rules as a resource of its operator."""
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "stoop"},
        "spec": rules,
    }
    return _HEAD + yaml.safe_dump(resource, sort_keys=False, width=120)


if __name__ == "__main__":
    given = (_HERE.parent / "monitoring" / "alerts.yml").read_text(encoding="utf-8")
    ALERTS.write_text(as_resource(yaml.safe_load(given)), encoding="utf-8")
