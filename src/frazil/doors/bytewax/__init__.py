"""The Bytewax door: a sink for flows, and helpers for the steps before it. Delivery: exactly once with Bytewax's recovery."""
