"""One export, from results to a file or folder that appears only once it is complete."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from stoop.errors import ConfigError
from stoop.export.formats.dataset import Dataset
from stoop.export.formats.parquet import write_parquet
from stoop.export.formats.registry import FORMATS, Format, FormatName, Sizes
from stoop.export.formats.transcripts import write_transcripts
from stoop.export.gathered import Gathered
from stoop.export.images import open_images
from stoop.export.report import Report
from stoop.export.rows import BadLine, Row, read_rows
from stoop.subtitles import FORMATS as TRANSCRIPTS

if TYPE_CHECKING:
    from stoop.config import ProducerConfig

__all__ = ["check_out", "export", "staged"]


def export(
    sources: Sequence[str],
    name: FormatName,
    out: Path,
    *,
    images: str | None,
    config: "ProducerConfig",
    watch: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Write the results of the `sources` (folders, files, `-`) to `out`, and return a report.

    Results about one image are grouped together, even from several sources.

    `images` is a folder, `s3`, or None: see `open_images`. `watch` receives the report and may read it as it grows.
    Raises `ConfigError` if nothing can be written, and `UploadFailed` if the object store refuses or does not answer.
    In both cases `out` does not exist.
    """
    wanted, out = FORMATS.get(name), out.expanduser().absolute()
    is_transcript = name in TRANSCRIPTS
    check_out(out, name, wanted, transcripts=is_transcript)
    report = Report(out.with_name(f"{out.name}.errors.jsonl"))
    watch(report)
    with closing(open_images(images, config)) as found, staged(out) as staging, closing(report):
        report.errors_file.unlink(missing_ok=True)
        if is_transcript:
            write_transcripts(_read_all(sources), name, report, staging / out.name)
        elif wanted is None:
            write_parquet(_read_all(sources), found, report, staging / out.name)
        else:
            with closing(Gathered(staging / "rows.db")) as gathered:
                dataset = Dataset(gathered, found, report, wanted.rename, wanted.distinct)
                _write(sources, wanted, dataset, staging / out.name)
        _check_written(report, " and ".join(sources))
        # an empty folder may exist already
        (staging / out.name).replace(out)
    return report


def check_out(out: Path, name: str, wanted: Format | None, *, transcripts: bool = False) -> None:
    """Check before any work that `out` is free and fits the format. Raises `ConfigError`.

    `None` is Parquet, or a format of `transcripts`, which make a folder.
    """
    other = (None, True) if transcripts else (".parquet", False)
    suffix, folder = other if wanted is None else (wanted.suffix, wanted.folder)
    if not folder and out.suffix != suffix:
        raise ConfigError(f"{name} is one file: give --out a name that ends in {suffix}")
    is_folder = folder and out.suffix != suffix
    if out.is_dir() and is_folder and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} exists already: give another name, or delete it first")


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Make a folder beside `out` to work in, and remove it at the end; disks and databases fail as `ConfigError`."""
    folder = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        yield folder
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"cannot write {out}: {error}") from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _read_all(sources: Sequence[str]) -> Iterator[Row | BadLine]:
    """Read each source once."""
    return chain.from_iterable(read_rows(source) for source in dict.fromkeys(sources))


def _write(sources: Sequence[str], wanted: Format, dataset: Dataset, out: Path) -> None:
    for row in _read_all(sources):
        dataset.add(row)
    if wanted.sizes is not Sizes.UNUSED:
        dataset.measure(needed=wanted.sizes is Sizes.NEEDED)
    wanted.write(dataset, out)


def _check_written(report: Report, source: str) -> None:
    if report.written["images"] or report.written["rows"]:
        return
    if report.errors:
        raise ConfigError(
            f"nothing in {source} could be used: {report.last_error} ({report.errors} errors in {report.errors_file})"
        )
    raise ConfigError(
        f"nothing to write: of {report.rows} rows in {source} {sum(report.unfinished.values())} have no answer,"
        f" {report.without_image} no image"
    )
