"""Data sets of labelled images: CIFAR-10, scikit-learn's digits, and NAME.npz files."""
