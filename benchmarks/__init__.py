"""One module for each question, run by `hoptrain bench NAME`."""
