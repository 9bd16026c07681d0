"""Objects in an allowed place that are not images, or are hostile images."""

import io
import zipfile
import zlib

from PIL import Image

from tests.images.bombs import exif_bomb, gif_of_blocks, png_of_chunks, rle_bmp, scan_bomb, segment_bomb
from tests.security.case import MARK, Case, with_image
from tests.security.pictures import (
    bmp_of_size,
    encoded,
    gif_of_size,
    jpeg_of_size,
    png,
    png_of_size,
    png_with_chunk,
    tiff,
    webp_of_size,
)

__all__ = ["IMAGES"]

HUGE = 60_000
BLOWN_UP = zlib.compress(bytes(100_000_000))


def animated(kind: str, frames: int) -> bytes:
    pictures = [Image.new("P", (16, 16), number % 256) for number in range(frames)]
    file = io.BytesIO()
    pictures[0].convert("RGB").save(file, kind, save_all=True, append_images=[each.convert("RGB") for each in pictures])
    return file.getvalue()


def archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("run.sh", "true")
    return file.getvalue()


IMAGES: list[Case] = [
    with_image("an empty object", "image_undecodable", b""),
    with_image("a text", "image_undecodable", MARK.encode()),
    with_image(
        "an SVG",
        "image_undecodable",
        b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    ),
    with_image("a PDF", "image_undecodable", b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\n%%EOF"),
    with_image(
        "a PostScript program", "image_undecodable", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n"
    ),
    with_image("a web page", "image_undecodable", b"<!doctype html><script>alert(1)</script>"),
    with_image("an icon", "image_undecodable", encoded("ICO")),
    with_image("a TGA, a format without a mark", "image_undecodable", encoded("TGA")),
    with_image("over the limit of bytes", "image_too_large", png() + bytes(2 << 20)),
    with_image("a PNG bomb", "image_too_large", png_of_size(HUGE, HUGE)),
    with_image("a PNG a little over the limit", "image_too_large", png_of_size(2001, 2000)),
    with_image("a JPEG bomb", "image_too_large", jpeg_of_size(HUGE, HUGE)),
    with_image("a GIF bomb", "image_too_large", gif_of_size(HUGE, HUGE)),
    with_image("a BMP bomb", "image_too_large", bmp_of_size(HUGE, HUGE)),
    with_image("a WEBP bomb", "image_too_large", webp_of_size(HUGE, HUGE)),
    with_image("a TIFF bomb", "image_too_large", tiff(HUGE, HUGE)),
    with_image(
        "a PNG whose comment inflates to 100 MB",
        "completed",
        png_with_chunk(b"zTXt", b"a\0\0" + BLOWN_UP),
    ),
    with_image(
        "a PNG whose profile inflates to 100 MB",
        "completed",
        png_with_chunk(b"iCCP", b"a\0\0" + BLOWN_UP),
    ),
    with_image("a JPEG of 20,000 scans", "image_too_large", scan_bomb(1000, 20_000)),
    with_image("a JPEG of 300,000 segments", "image_too_large", segment_bomb(300_000)),
    with_image("a PNG of 100,000 chunks", "image_too_large", png_of_chunks(b"teSt", b"", 100_000)),
    with_image("a GIF with a comment of 500,000 blocks", "image_too_large", gif_of_blocks(500_000)),
    with_image("a run-length BMP of short rows", "image_too_large", rle_bmp(2000, 2000)),
    with_image("a JPEG whose EXIF fields are all the same 60 KB", "completed", exif_bomb(3000)),
    with_image("a PNG of no width", "image_undecodable", png_of_size(0, 30)),
    with_image("a BMP of negative width", "image_too_large", bmp_of_size(-40, 30)),
    with_image("a PNG that ends early", "image_undecodable", png()[:-30]),
    with_image("a JPEG that ends early", "image_undecodable", encoded("JPEG", size=(400, 300))[:-300]),
    with_image("a PNG with a broken checksum", "image_undecodable", png().replace(b"IDAT", b"IDAU")),
    with_image("a TIFF whose pixels are not there", "image_undecodable", tiff(40, 30, strip=1 << 30)),
    with_image("a TIFF whose directories form a ring", "completed", tiff(8, 8, following=72)),
    with_image("a PNG with an archive behind it", "completed", png() + archive()),
    with_image("a PNG behind a PDF's head", "image_undecodable", b"%PDF-1.7\n" + png()),
    with_image("a GIF that is a script", "image_undecodable", b"GIF89a/*" + bytes(20) + b"*/=1;alert(1)"),
    with_image(
        "a JPEG with a script as its comment", "completed", encoded("JPEG", comment=b"<script>" + MARK.encode())
    ),
    with_image("a GIF of 500 frames", "completed", animated("GIF", 500)),
    with_image("a PNG of 50 frames", "completed", animated("PNG", 50)),
    with_image("a CMYK JPEG", "completed", encoded("JPEG", "CMYK")),
    with_image("a PNG of 16 bits", "completed", encoded("PNG", "I;16")),
    with_image("a palette with transparency", "completed", encoded("PNG", "P", transparency=0)),
    with_image("one pixel", "completed", encoded("PNG", size=(1, 1))),
    with_image("a line of 65,000 pixels", "completed", encoded("JPEG", "L", size=(65_000, 1))),
]
