"""Scripts for those who work on outlast; nothing of the library."""
