from worker.kernels.patchify.reference import normalised_levels, patchify

__all__ = ["normalised_levels", "patchify"]
