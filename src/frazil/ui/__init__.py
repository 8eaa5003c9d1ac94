"""A read-only web application that shows pipelines and their tables: from the tables, and from the process that runs them."""
