"""What ``hoptrain doctor`` looks at; nothing heavy is imported here, since what is looked for may not be there."""
