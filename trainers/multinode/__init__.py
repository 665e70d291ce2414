"""A run whose features lie in parts on several machines: what connects these, by torch's collectives."""
