"""Frozen values and pure functions: what a pipeline is. Nothing here knows Spark."""
