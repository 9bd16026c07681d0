"""Turns recordings into the frames that speech models read: numpy, without torch.

mel.py  the log-mel frames of one window, and their size
"""

from stoop_worker.audio.mel import FRAMES, Mel, MelGeometry

__all__ = ["FRAMES", "Mel", "MelGeometry"]
