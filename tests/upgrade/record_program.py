"""A producer of an earlier release for `record.py`: `record_program.py PACKAGE waiting|ended` prints its jobs' ids.

It runs with the packages of its release, so it imports nothing of today's.
"""

import asyncio
import importlib
import json
import sys
import time
from typing import Any

IMAGE = "s3://stoop/recorded.png"
SETTINGS = {"temperature": 0.0, "top_p": 0.9, "max_tokens": 16, "max_objects": 3, "seed": 7}

WAITING: dict[str, dict[str, Any]] = {
    "question": {"skill": "query", "question": "without an image"},
    "all fields": {
        "skill": "query",
        "image": IMAGE,
        "question": "with all fields",
        "reasoning": True,
        "spatial_refs": [[0.25, 0.5], [0.1, 0.2, 0.3, 0.4]],
        "settings": SETTINGS,
        "stream": True,
        "max_attempts": 2,
        "idempotency_key": "recorded",
        "custom_id": "row 1",
        "metadata": {"shop": 7, "tags": ["a", "b"]},
    },
    "caption": {"skill": "caption", "image": IMAGE, "length": "short", "lane": "bulk"},
    "detect": {"skill": "detect", "image": IMAGE, "object": "a cat", "stream": True},
    "point": {"skill": "point", "image": IMAGE, "object": "a cat", "tenant": "acme", "lane": "bulk"},
}
ENDED: dict[str, dict[str, Any]] = {
    "quiet": {"skill": "query", "question": "a quiet one", "custom_id": "row 2", "metadata": {"number": 2}},
    "streamed": {"skill": "query", "question": "a streamed one", "stream": True},
    "cancelled": {"skill": "query", "question": "not wanted any more", "stream": True},
    "expired": {"skill": "query", "question": "too late", "deadline": 1},
}


async def main(package: str, kind: str) -> None:
    """Submit the jobs, and cancel one."""
    jobs = {"waiting": WAITING, "ended": ENDED}[kind]
    ids = {}
    async with importlib.import_module(package).AsyncClient() as client:
        for name, fields in jobs.items():
            given = {"settings": {"max_tokens": 1}, **fields}
            if "deadline" in given:
                given["deadline"] = int(1000 * time.time()) + 200
            skill, image = given.pop("skill"), given.pop("image", None)
            ids[name] = await client.submit(await client.prepare(skill, image, **given))
        if "cancelled" in ids:
            await client.cancel(ids["cancelled"])
    print(json.dumps(ids))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
