"""The checks of ``hoptrain doctor``. They import no package that may be missing or broken, except in a child process."""
