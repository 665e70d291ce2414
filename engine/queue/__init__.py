"""The shared-memory queue: worker processes, the slots that carry their batches, and the pool that delivers these in order."""
