"""How a batch becomes a change of a table: shape, mode, one writer, many tables, dead letters."""
