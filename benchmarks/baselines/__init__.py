"""The systems that hoptrain is measured beside, each driven as its documentation advises."""
