"""The Python door: sinks for data frames, whole pipelines, and Spark's own writers."""
