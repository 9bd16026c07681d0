from worker.kernels.sampling.reference import LEAST_TEMPERATURE, sample, top_p_filter

__all__ = ["LEAST_TEMPERATURE", "sample", "top_p_filter"]
