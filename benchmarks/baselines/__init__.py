"""The systems that hoptrain is compared with, each used as its documentation recommends."""
