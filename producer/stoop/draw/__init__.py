"""Answers drawn on their images, singly or as a gallery with a contact sheet.

drawing.py  one answer on its image: boxes, points, or a strip of text below
gallery.py  all results of a run on their images, with a contact sheet
sheet.py    the pages of the contact sheet: self-contained HTML without scripts
tile.py     one image of the sheet: a thumbnail and its texts
"""

from stoop.draw.drawing import COLOURS, draw_output

__all__ = ["COLOURS", "draw_output"]
