"""Measurements of outlast, as ratios to a raw limit taken in the same run."""
