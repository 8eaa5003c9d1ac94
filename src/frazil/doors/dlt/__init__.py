"""The dlt door: a destination for dlt pipelines. Its users import it as `frazil.dlt`."""
