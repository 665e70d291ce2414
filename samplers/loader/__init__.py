"""From a schedule to mini-batches with their features: the loader, in this process, in sampler processes, or on a device."""
