"""Answers drawn on their images, one by one or as a gallery with a contact sheet."""

from producer.draw.drawing import COLOURS, draw_output

__all__ = ["COLOURS", "draw_output"]
