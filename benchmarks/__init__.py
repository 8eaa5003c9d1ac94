"""Measures frazil beside bare Spark: ``python -m benchmarks [--quick] [append stream memory]``. See ``docs/benchmarks.md``."""
