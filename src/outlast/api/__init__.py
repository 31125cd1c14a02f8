"""What users call: decorators, run and its kin, the operator's client."""
