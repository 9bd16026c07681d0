from django.urls import path

from shop import views

__all__ = ["urlpatterns"]

urlpatterns = [path("photos", views.add), path("photos/<int:photo_id>", views.show)]
