"""When a batch is in the table: the commit protocol and its retries. Knows neither Spark nor Iceberg."""
