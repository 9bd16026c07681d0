from django.db import models

__all__ = ["Photo"]


class Photo(models.Model):
    """A photo in the object store, and what is said of it: a caption, or why there is none."""

    address = models.CharField(max_length=1024)
    caption = models.TextField(blank=True)
    failure = models.TextField(blank=True)
