"""The pages of a contact sheet: each is one self-contained file without scripts."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final, TextIO
from urllib.parse import quote

__all__ = ["Sheet"]

# a page may show only content that it contains itself
_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_FILTERS: Final = {
    "all": "all",
    "ok": "answered",
    "failed": "failed",
    "with": "with boxes or points",
    "without": "without",
}
"""The filters of tiles: their classes, with the labels of the buttons."""

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #626b76; --line: #d9dee4; --card: #fff; --ground: #f3f5f7;
  --wrong: #b3261e; --chip: #eaf0f8; --chosen: #1b1f24; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #9aa4b0; --line: #31363d; --card: #1d2126;
  --ground: #121519; --wrong: #ff8a80; --chip: #2a323d; --chosen: #e8eaed; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; }
header { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: center;
  padding: .7rem 1.2rem; background: var(--card); border-bottom: 1px solid var(--line); }
h1 { margin: 0; font-size: 1.05rem; overflow-wrap: anywhere; }
header p { margin: 0; color: var(--soft); }
.filter { position: absolute; opacity: 0; pointer-events: none; }
label { padding: .15rem .8rem; border: 1px solid var(--line); border-radius: 99px; cursor: pointer; }
#all:checked ~ header [for=all], #ok:checked ~ header [for=ok], #failed:checked ~ header [for=failed],
#with:checked ~ header [for=with], #without:checked ~ header [for=without] { background: var(--chosen);
  border-color: var(--chosen); color: var(--card); }
.filter:focus-visible ~ header { outline: 2px solid #4363d8; }
#ok:checked ~ main figure:not(.ok), #failed:checked ~ main figure:not(.failed),
#with:checked ~ main figure:not(.with), #without:checked ~ main figure:not(.without) { display: none; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(260px, 1fr)); gap: 1rem; padding: 1.2rem; }
figure { margin: 0; display: flex; flex-direction: column; overflow: hidden; background: var(--card);
  border: 1px solid var(--line); border-radius: 10px; }
figure.failed { border-color: var(--wrong); }
img, .none { display: block; width: 100%; height: 240px; object-fit: contain; background: var(--ground); }
.none { display: grid; place-items: center; color: var(--soft); }
figcaption { padding: .6rem .8rem .8rem; min-width: 0; }
h2 { margin: 0 0 .35rem; font-size: .8rem; font-weight: 600; color: var(--soft); overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; }
figcaption p { margin: .35rem 0 0; overflow-wrap: anywhere; max-height: 12em; overflow-y: auto; }
figcaption i { color: var(--soft); }
.wrong { color: var(--wrong); }
ul { display: flex; flex-wrap: wrap; gap: .3rem; margin: 0; padding: 0; list-style: none; }
li { padding: 0 .5rem; background: var(--chip); border-radius: 6px; overflow-wrap: anywhere; }
nav { display: flex; gap: 1rem; }
a { color: inherit; }
"""


@dataclass(slots=True)
class Sheet:
    """Writes tiles into pages: `first`, then files beside it with numbers. `images` is the number of tiles to expect.

    Use it in a `with`; `facts` is one line about the whole sheet.
    """

    first: Path
    title: str
    facts: str
    images: int
    page_images: int
    _file: TextIO | None = None
    _tiles: int = 0

    @property
    def pages(self) -> int:
        """The number of pages."""
        return max(1, -(-self.images // self.page_images))

    def add(self, tile: str) -> None:
        """Write a tile on the page, or on the next if this one is full."""
        if self._tiles % self.page_images == 0:
            self._begin_page()
        assert self._file is not None, "a page was begun"
        self._file.write(tile)
        self._tiles += 1

    def __enter__(self) -> "Sheet":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            self._begin_page()
        self._end()

    def _begin_page(self) -> None:
        self._end()
        number = self._tiles // self.page_images + 1
        self._file = self._path(number).open("w", encoding="utf-8")
        self._file.write(self._head(number))

    def _end(self) -> None:
        if self._file is not None:
            self._file.write("</main>\n</body>\n</html>\n")
            self._file.close()

    def _path(self, number: int) -> Path:
        return self.first if number == 1 else self.first.with_name(f"{self.first.stem}-{number}{self.first.suffix}")

    def _head(self, number: int) -> str:
        title = escape(self.title)
        radios = "".join(
            f'<input class="filter" type="radio" name="show" id="{name}"{" checked" if name == "all" else ""}>'
            for name in _FILTERS
        )
        labels = "".join(f'<label for="{name}">{label}</label>' for name, label in _FILTERS.items())
        return (
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
            f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<style>{_STYLE}</style>\n</head>\n<body>\n{radios}\n"
            f"<header><h1>{title}</h1><p>{escape(self.facts)}</p>{labels}{self._links(number)}</header>\n<main>\n"
        )

    def _links(self, number: int) -> str:
        if self.pages == 1:
            return ""
        before = self._link(number - 1, "previous") if number > 1 else ""
        after = self._link(number + 1, "next") if number < self.pages else ""
        return f"<nav>{before}<span>page {number} of {self.pages}</span>{after}</nav>"

    def _link(self, number: int, label: str) -> str:
        return f'<a href="./{escape(quote(self._path(number).name))}">{label}</a>'
