"""A graph whose edges are larger than memory: their sources are read from the file, hop by hop for the batches of many steps together."""
