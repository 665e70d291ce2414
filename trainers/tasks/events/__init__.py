"""Events in time: a temporal graph network learns which come next."""
