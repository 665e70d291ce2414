"""CUDA drivers of samplers that choose the seeds of another sampler: links and weighted draws."""
