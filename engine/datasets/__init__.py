"""Data sets by name: where each comes from and how it is converted into a folder of arrays.

``load.py``       load_dataset, load_hetero_dataset and the registry; ``load_graphs.py`` load_small_graphs
``listing.py``    list_datasets
``digits.py``     scikit-learn's digits, offline; ``diabetes.py`` its diabetes patients
``npz.py``        NAME.npz files; ``tables/`` tables of nodes and edges; ``images/`` images
``small_graphs.py`` many small graphs
``pyg.py``        downloads through PyTorch Geometric
``ogb/``          downloads from the Open Graph Benchmark
``synthetic.py``  generated, at any scale; ``mag.py`` with several node types
``cache.py``      the folder of conversions; ``source.py`` an entry of the registry, and what the sources share
"""

from hoptrain.engine.datasets.listing import Entry, list_datasets
from hoptrain.engine.datasets.load import load_dataset, load_hetero_dataset

__all__ = ["Entry", "list_datasets", "load_dataset", "load_hetero_dataset"]
