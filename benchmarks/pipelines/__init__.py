"""Programs that ``hoptrain bench pipeline`` starts as child processes: the ranks of a training, and prediction."""
