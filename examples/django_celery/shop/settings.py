"""The least that Django needs; broker and results are in the queue's Redis."""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "for this example only")
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.urls"
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DATABASE", "shop.sqlite3")}
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

CELERY_BROKER_URL = CELERY_RESULT_BACKEND = os.environ.get("STOOP_REDIS_URL", "redis://localhost:6379/0")
