"""Data sets by name: their sources, and their conversion to folders of arrays.

``load.py``       ``load_dataset``, ``load_hetero_dataset`` and the registry; ``load_graphs.py`` has ``load_small_graphs``
``listing.py``    ``list_datasets``
``digits.py``     scikit-learn's digits, available offline; ``diabetes.py`` has scikit-learn's diabetes patients
``npz.py``        NAME.npz files; ``tables/`` has tables of nodes and edges; ``images/`` has images
``small_graphs.py`` data sets of many small graphs
``pyg.py``        downloads through PyTorch Geometric
``ogb/``          downloads from the Open Graph Benchmark
``synthetic.py``  generated data sets of any scale; ``mag.py`` generates one with several node types
``cache.py``      the cache of converted data sets; ``source.py`` has the class of registry entries, and functions that several sources use
"""

from hoptrain.engine.datasets.listing import Entry, list_datasets
from hoptrain.engine.datasets.load import load_dataset, load_hetero_dataset

__all__ = ["Entry", "list_datasets", "load_dataset", "load_hetero_dataset"]
