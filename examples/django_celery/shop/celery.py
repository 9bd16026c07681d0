"""The Celery application, as Django's projects have it, with Stoop's skills configured."""

import os

from celery import Celery

from stoop.celery import configure

__all__ = ["app"]

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
configure(app)
app.autodiscover_tasks()
