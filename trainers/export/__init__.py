"""A trained model as a file that a program without Lightning, and without this library's models, can run."""
