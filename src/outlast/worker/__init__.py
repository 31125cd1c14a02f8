"""Executing runs: in this process, or in a worker process under a supervisor."""
