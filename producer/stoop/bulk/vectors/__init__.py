"""The vectors of a bulk run over texts: each full shard of lines becomes a Parquet or .npy file, in a folder or in S3.

options.py     the options of `stoop bulk-embed` as one value
archive.py     turns shards of lines into shards of vectors, and keeps them
places.py      the place of the shards: a folder, or a prefix of the object store
parquet.py     shards as Parquet
npy.py         shards as .npy, with a file of rows beside each
shard.py       the lines of a shard, one text each
"""

__all__: list[str] = []
