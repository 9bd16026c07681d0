"""Brings pages that live beside the code into the site, and those made from the code; points links at each other."""

import os
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from stoop.gateway.openapi import document
from stoop.gateway.routes import ROUTES

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # MkDocs runs this file by its path

from docs.http_reference import http_reference  # noqa: E402
from docs.messages import messages_page  # noqa: E402
from docs.settings import settings_page  # noqa: E402

PAGES: Final = {
    "producer/stoop/gateway/README.md": "guides/gateway.md",
    "producer/stoop/gateway/grpc/README.md": "guides/grpc.md",
    "producer/stoop/bulk/README.md": "guides/bulk.md",
    "producer/stoop/export/README.md": "guides/exports.md",
    "producer/stoop/celery/README.md": "guides/celery.md",
    "examples/README.md": "guides/examples.md",
    "examples/starlette_sse/README.md": "guides/browser.md",
    "schemas/README.md": "reference/wire.md",
    "deploy/README.md": "operate/deploy.md",
    "deploy/kubernetes/README.md": "operate/kubernetes.md",
    "deploy/triton/README.md": "guides/triton.md",
    "SECURITY.md": "operate/security.md",
    "CONTRIBUTING.md": "contribute/index.md",
    "producer/README.md": "contribute/producer.md",
    "worker/README.md": "contribute/worker.md",
    "worker/stoop_worker/models/README.md": "contribute/models.md",
    "tests/README.md": "contribute/tests.md",
    "DECISIONS.md": "background/decisions.md",
    "PERFORMANCE.md": "background/performance.md",
    "CHANGELOG.md": "background/changes.md",
}
"""Pages of the repository, and where the site has them."""

_LINK: Final = re.compile(r"(!?)\[([^]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's pages, and the pictures that they show."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        for picture in pictures(source, text):
            files.append(File.generated(config, f"pictures/{picture.name}", content=(ROOT / picture).read_bytes()))
        files.append(File.generated(config, page, content=moved(text, source, page)))
    files.append(File.generated(config, "reference/http.md", content=http_reference(document(ROUTES))))
    files.append(File.generated(config, "operate/messages.md", content=messages_page(ROOT)))
    files.append(File.generated(config, "reference/settings.md", content=settings_page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of `docs/` to files of the repository at the pages that the site has of them."""
    path = page.file.src_uri
    return moved(markdown, f"docs/{path}", path) if (ROOT / "docs" / path).exists() else markdown


def moved(text: str, source: str, page: str) -> str:
    """Return a page's text with links for its place in the site; a link to a file that the site lacks becomes text."""

    def link(match: re.Match[str]) -> str:
        picture, label, target, anchor = match.groups()
        path = _resolved(source, target)
        if path.suffix == ".png":
            return f"{picture}[{label}]({_relative(f'pictures/{path.name}', page)})"
        found = _page_of(path)
        return f"{picture}[{label}]({_relative(found, page)}{anchor or ''})" if found else label

    return _LINK.sub(link, text)


def _page_of(path: PurePosixPath) -> str | None:
    """Return the site's page of a file or of a folder's README; pictures of `docs/` count as pages."""
    if path.parts[:1] == ("docs",):
        return PurePosixPath(*path.parts[1:]).as_posix()
    return PAGES.get(path.as_posix()) or PAGES.get((path / "README.md").as_posix())


def pictures(source: str, text: str) -> set[PurePosixPath]:
    """Return the pictures that a page links to, as paths within the repository."""
    found = {_resolved(source, target) for _, _, target, _ in _LINK.findall(text)}
    return {path for path in found if path.suffix == ".png"}


def _resolved(source: str, target: str) -> PurePosixPath:
    return PurePosixPath(os.path.normpath(PurePosixPath(source).parent / target))


def _relative(target: str, page: str) -> str:
    return os.path.relpath(target, PurePosixPath(page).parent)
