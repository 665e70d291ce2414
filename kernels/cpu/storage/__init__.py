"""CPU kernels for rows on disk: planning which rows to cache, reading the others, and quantised rows."""
