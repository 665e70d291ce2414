"""Labelled images: CIFAR-10, scikit-learn's digits, NAME.npz files."""
