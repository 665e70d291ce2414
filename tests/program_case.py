"""Sampling programs for tests on the CPU and on CUDA."""

from hoptrain.samplers import STOP, SamplingProgram, randint

ADDRESS = {"seed": 7, "epoch": 2, "batch": 5}


class Sage(SamplingProgram):
    def __init__(self, fanouts):
        self.fanouts = fanouts
        self.steps = len(fanouts)

    def sample_size(self, step):
        return self.fanouts[step]

    def next(self, transit, step, rng):
        return randint(rng, len(transit.neighbors))


class Distinct(Sage):
    def unique(self, step):
        return True


class Even(Sage):
    """A program that draws only edges whose source has an even id."""

    def next(self, transit, step, rng):
        edge = randint(rng, len(transit.neighbors))
        return edge if transit.neighbors[edge] % 2 == 0 else STOP


class Heaviest(SamplingProgram):
    steps = 1

    def next(self, transit, step, rng):
        best = 0
        for edge in range(len(transit.weights)):
            if transit.weights[edge] > transit.weights[best]:
                best = edge
        return best


class Counting(SamplingProgram):
    """A program that takes the neighbour whose index is a count: the visits so far to nodes whose ids have this parity."""

    output = "walks"
    steps = 6
    num_walks = 2
    state_size = 2

    def next(self, transit, step, rng):
        parity = transit.node % 2
        transit.state[parity] += 1
        return transit.state[parity] % len(transit.neighbors)


class Layer(SamplingProgram):
    """A program that draws only neighbours with at least two edges into the layer."""

    sampling_type = "collective"
    steps = 2

    def sample_size(self, step):
        return 50

    def next(self, transit, step, rng):
        place = randint(rng, len(transit.neighbors))
        return place if transit.weights[place] >= 2 else STOP


class Beyond(Sage):
    """A program that returns an edge index out of range."""

    def next(self, transit, step, rng):
        return len(transit.neighbors)
