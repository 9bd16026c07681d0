"""`POST /photos` with {"image": "s3://…"} begins a caption, `GET /photos/<id>` returns it."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_POST

from shop.models import Photo
from shop.tasks import give_up, keep
from stoop.celery import caption

__all__ = ["add", "show"]


@require_POST
def add(request: HttpRequest) -> JsonResponse:
    """Add a photo, and begin its caption when it is in the database."""
    with transaction.atomic():
        photo = Photo.objects.create(address=json.loads(request.body)["image"])
        steps = caption.s(photo.address, length="short") | keep.s(photo.pk)
        transaction.on_commit(steps.on_error(give_up.s(photo.pk)).delay)
    return JsonResponse({"id": photo.pk}, status=202)


@require_GET
def show(request: HttpRequest, photo_id: int) -> JsonResponse:
    """Return the state of a photo and its caption."""
    photo = get_object_or_404(Photo, pk=photo_id)
    return JsonResponse({"image": photo.address, "caption": photo.caption, "failure": photo.failure})
