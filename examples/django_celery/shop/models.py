from django.db import models

__all__ = ["Photo"]


class Photo(models.Model):
    """A photo in the object store, with its caption or the reason why it has none."""

    address = models.CharField(max_length=1024)
    caption = models.TextField(blank=True)
    failure = models.TextField(blank=True)
