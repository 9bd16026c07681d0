from worker.kernels.layer_norm.reference import layer_norm

__all__ = ["layer_norm"]
