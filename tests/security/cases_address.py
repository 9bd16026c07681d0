"""Image addresses that a job must not read, and images within the job itself."""

import base64
from typing import Any

from tests.security.case import BUCKET, MARK, Case, job
from tests.security.pictures import png, png_of_size

__all__ = ["ADDRESSES", "INLINE"]

PIXEL = png()


def at(name: str, ends: str, image: str, **fields: Any) -> Case:
    return job(name, ends, image=image, **fields)


def inline(name: str, ends: str, kind: str, encoded: bytes) -> Case:
    return job(name, ends, image=f"data:image/{kind};base64," + base64.b64encode(encoded).decode())


ADDRESSES: list[Case] = [
    at("another bucket", "image_forbidden", "s3://elsewhere/in/a.png"),
    at("a bucket whose name begins alike", "image_forbidden", f"s3://{BUCKET}-evil/in/a.png"),
    at("a prefix that begins alike", "image_forbidden", f"s3://{BUCKET}/inside/a.png"),
    at("another tenant's prefix", "image_forbidden", f"s3://{BUCKET}/acme/a.png", tenant="rival"),
    at("a tenant's prefix without the tenant", "image_forbidden", f"s3://{BUCKET}/acme/a.png"),
    at("the general prefix by a tenant with its own", "image_forbidden", f"s3://{BUCKET}/in/a.png", tenant="acme"),
    at("a step up out of the prefix", "invalid_argument", f"s3://{BUCKET}/in/../secret/a.png"),
    at("an encoded step up", "image_not_found", f"s3://{BUCKET}/in/%2e%2e/secret.png"),
    at("a step up by a backslash", "image_not_found", f"s3://{BUCKET}/in/..\\secret.png"),
    at("a key with a zero byte", "image_not_found", f"s3://{BUCKET}/in/a\0.png"),
    at("a key with a line break", "image_not_found", f"s3://{BUCKET}/in/a\r\nHost: x"),
    at("a key of 1,025 bytes", "invalid_argument", f"s3://{BUCKET}/in/" + "k" * 1022),
    at("no key", "invalid_argument", f"s3://{BUCKET}/"),
    at("an access point of another account", "invalid_argument", "s3://arn:aws:s3:us-east-1:1:accesspoint/x/in/a.png"),
    at("credentials in the address", "invalid_argument", f"s3://{MARK}:{MARK}@{BUCKET}/in/a.png"),
    at("a signature in the key", "image_not_found", f"s3://{BUCKET}/in/a.png?X-Amz-Signature={MARK}"),
    at("a file of the worker's", "invalid_argument", "file:///etc/passwd"),
    at("a path", "invalid_argument", "/etc/passwd"),
    at("gopher", "invalid_argument", "gopher://127.0.0.1:6379/_FLUSHALL"),
    at("http to a metadata service", "invalid_argument", "http://169.254.169.254/latest/meta-data/"),
    at("an address of two million characters", "image_too_large", "s3://" + "b" * 2_000_000),
]

INLINE: list[Case] = [
    at("text in the job that is no image", "invalid_argument", "data:text/html;base64,PGI+"),
    at("base64 with a stray sign", "invalid_argument", "data:image/png;base64,AA*="),
    at("base64 of half a byte", "invalid_argument", "data:image/png;base64,A"),
    at("percent-encoding in place of base64", "invalid_argument", "data:image/png,%89PNG"),
    at("an empty image in the job", "image_undecodable", "data:image/png;base64,"),
    at("an image of 2 MB in the job", "image_too_large", "data:image/png;base64," + "A" * 2_000_000),
    inline("an SVG in the job", "image_undecodable", "svg+xml", b'<svg xmlns="http://www.w3.org/2000/svg"/>'),
    inline("an image of another type than it says", "completed", "jpeg", PIXEL),
    inline("a bomb in the job", "image_too_large", "png", png_of_size(100_000, 100_000)),
]
