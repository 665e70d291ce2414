"""The study of ``hoptrain bench scale``: its cells, the programs that run them, the result table and the plots."""
