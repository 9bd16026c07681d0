"""One export from its results to its file or folder, which is there only when it is whole."""

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from producer.errors import ConfigError
from producer.export.dataset import Dataset
from producer.export.formats import FORMATS, Format, FormatName, Sizes
from producer.export.gathered import Gathered
from producer.export.images import open_images
from producer.export.parquet import write_parquet
from producer.export.report import Report
from producer.export.rows import read_rows

if TYPE_CHECKING:
    from producer.config import ProducerConfig

__all__ = ["check_out", "export", "staged"]


def export(
    source: str,
    name: FormatName,
    out: Path,
    *,
    images: str | None,
    config: "ProducerConfig",
    watch: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Write the results of `source` (a folder, a file, `-`) to `out` and return what became of them.

    `images` is a folder, `s3`, or None: see `open_images`. `watch` is given the report, to look at while it grows.
    Raises `ConfigError` where nothing can be written, and `UploadFailed` where the object store refuses or is silent;
    `out` is not there then.
    """
    wanted, out = FORMATS.get(name), out.expanduser().absolute()
    check_out(out, name, wanted)
    report = Report(out.with_name(f"{out.name}.errors.jsonl"))
    watch(report)
    with closing(open_images(images, config)) as found, staged(out) as staging, closing(report):
        report.errors_file.unlink(missing_ok=True)
        if wanted is None:
            write_parquet(read_rows(source), found, report, staging / out.name)
        else:
            with closing(Gathered(staging / "rows.db")) as gathered:
                dataset = Dataset(gathered, found, report, wanted.rename, wanted.distinct)
                _write(source, wanted, dataset, staging / out.name)
        _check_written(report, source)
        # an empty folder may be there already
        (staging / out.name).replace(out)
    return report


def check_out(out: Path, name: str, wanted: Format | None) -> None:
    """Check before any work that `out` is free and fits the format; `None` is Parquet. Raises `ConfigError`."""
    suffix, folder = (".parquet", False) if wanted is None else (wanted.suffix, wanted.folder)
    if not folder and out.suffix != suffix:
        raise ConfigError(f"{name} is one file: give --out a name that ends in {suffix}")
    is_folder = folder and out.suffix != suffix
    if out.is_dir() and is_folder and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} is there already: give another name, or delete it first")


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


def _write(source: str, wanted: Format, dataset: Dataset, out: Path) -> None:
    for row in read_rows(source):
        dataset.add(row)
    if wanted.sizes is not Sizes.UNUSED:
        dataset.measure(needed=wanted.sizes is Sizes.NEEDED)
    wanted.write(dataset, out)


def _check_written(report: Report, source: str) -> None:
    if report.written["images"] or report.written["rows"]:
        return
    if report.errors:
        raise ConfigError(
            f"nothing of {source} could be used: {report.last_error} ({report.errors} such in {report.errors_file})"
        )
    raise ConfigError(
        f"nothing to write: of {report.rows} rows in {source} {sum(report.unfinished.values())} have no answer,"
        f" {report.without_image} no image"
    )
