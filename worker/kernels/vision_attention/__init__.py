from worker.kernels.vision_attention.reference import vision_attention

__all__ = ["vision_attention"]
