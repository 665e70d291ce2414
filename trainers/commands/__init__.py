"""The subcommands of ``hoptrain``, and the parsers of their options."""
