"""The shop's own tasks: they run on a stock Celery worker, behind the skill that ran on Stoop's."""

from typing import Any

from celery import current_app, shared_task

from shop.models import Photo

__all__ = ["give_up", "keep"]


@shared_task
def keep(output: dict[str, Any], photo_id: int) -> None:
    """Keep a caption; may run twice, and then writes the same."""
    Photo.objects.filter(pk=photo_id).update(caption=output["caption"])


@shared_task
def give_up(task_id: str, photo_id: int) -> None:
    """Keep why there is no caption."""
    Photo.objects.filter(pk=photo_id).update(failure=str(current_app.AsyncResult(task_id).result))
