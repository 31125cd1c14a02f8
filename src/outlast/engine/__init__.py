"""The step algorithm, its two drivers, and what stands around them."""
