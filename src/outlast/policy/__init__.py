"""Decisions as pure functions: values in, values out. The modules do not know each other."""
