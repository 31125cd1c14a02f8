"""The command line: a thin face on `outlast.Client`."""
