"""Samplers that wrap another sampler and choose its seeds: links, events, triples, weighted and timed seeds."""
