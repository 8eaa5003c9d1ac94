"""The Bytewax door: a sink for flows, and helpers for the steps before it."""
