"""Writes the page of settings from the configurations of clients and workers."""

from collections.abc import Iterable, Mapping
from typing import Final

from pydantic.fields import FieldInfo

from stoop.config import ProducerConfig
from stoop_worker.command import written_default
from stoop_worker.config import WorkerConfig

__all__ = ["settings_page"]

_TOP: Final = """# Settings

Every setting is a variable. A client also takes it as an argument (`Client(redis_url=…)`), and a worker as a flag
(`--redis-url`). Arguments and flags win over variables. Credentials of the object store come from the usual AWS
variables, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`. The gateway and the command line have a client's settings;
`stoop serve --help` lists the flags that the gateway has besides.
"""


def settings_page() -> str:
    """Return the page in Markdown."""
    client, worker = ProducerConfig.model_fields, WorkerConfig.model_fields
    parts = [_TOP, "## A client's, the gateway's and the command line's", *_table(client), "", "## A worker's"]
    return "\n".join([*parts, *_table(worker), ""])


def _table(fields: Mapping[str, FieldInfo]) -> Iterable[str]:
    yield "\n| variable | default | meaning |\n|---|---|---|"
    for name, field in fields.items():
        yield f"| `STOOP_{name.upper()}` | {_default(field)} | {(field.description or '').replace('|', ',')} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = written_default(field)
    return f"`{default}`" if default else ""
