"""Lightning callbacks, loggers and launchers of a run: displays, measurements, termination, and the rendezvous of ranks."""
