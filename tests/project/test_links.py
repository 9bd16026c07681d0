"""Links between the project's pages, as the repository shows them; the build of the documentation checks the site's."""

import re
from pathlib import Path

import pytest

from tests.project.modules import ROOT

_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]*)\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(
        part.startswith(".") or part in ("node_modules", "demo-output", "build")
        for part in path.relative_to(ROOT).parts
    )
)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub forms them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in _HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link} names no heading of {target.name}"


def test_the_pages_were_found() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "schemas/README.md", "worker/stoop_worker/models/README.md"} <= names
