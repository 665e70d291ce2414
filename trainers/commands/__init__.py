"""The subcommands of ``hoptrain`` that do not train."""
