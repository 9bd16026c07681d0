"""A skill on every image of a source: `stoop bulk`.

One row, left to right: `sources` reads it, `flight` makes a job of it, `submitter` puts that into the queue, and
`output` writes the line of its end. `run` keeps no more rows on their way than its window holds; `session` opens and
closes everything.
"""

__all__: list[str] = []
