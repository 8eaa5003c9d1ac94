"""Sources: each plans slices that can be read again, and reads them as Spark data frames."""
