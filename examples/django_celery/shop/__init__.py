"""A shop whose photos get captions. Tasks and views find the Celery application when it is imported here."""

from shop.celery import app as celery_app

__all__ = ["celery_app"]
