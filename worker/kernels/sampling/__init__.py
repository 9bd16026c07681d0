from worker.kernels.sampling.reference import sample, top_p_filter

__all__ = ["sample", "top_p_filter"]
