"""The pages' rows of the table of routes."""

from typing import Final

from stoop.gateway.pages import files, pictures
from stoop.gateway.route import Route

__all__ = ["PAGE_ROUTES"]

PAGE_ROUTES: Final = (
    Route(
        method="GET",
        path="/",
        run=files.show_playground,
        summary="Show the playground.",
        tag="Pages",
        scope=None,
        media_type="text/html",
    ),
    Route(
        method="GET",
        path="/pages/{name}",
        run=files.show_file,
        summary="Load a file of the pages.",
        tag="Pages",
        scope=None,
        media_type="text/javascript",
    ),
    Route(
        method="POST",
        path="/v1/images",
        run=pictures.upload_picture,
        summary="Upload a picture, the body, and return its address.",
        tag="Pages",
        answer=pictures.Picture,
    ),
    Route(
        method="GET",
        path="/v1/images",
        run=pictures.show_picture,
        summary="Show the picture at an address.",
        tag="Pages",
        query=("address",),
        media_type="image/png",
    ),
)
