from stoop_worker.kernels.rope.reference import Rotation, rope, rotation

__all__ = ["Rotation", "rope", "rotation"]
