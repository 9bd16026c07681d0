"""Where rows come from: a prefix in the object store, a folder, a file of lines or a table."""

from producer.bulk.sources.open import open_source
from producer.bulk.sources.source import Source

__all__ = ["Source", "open_source"]
