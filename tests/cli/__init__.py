"""The command line, through the command itself."""
