"""How many bytes of device memory a bulk moves, counted from its launches, and what time that predicts."""
