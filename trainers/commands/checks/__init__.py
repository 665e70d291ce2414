"""The checks of ``hoptrain doctor``. Packages that may be missing or broken are imported only in child processes."""
