"""Changes of PostgreSQL tables through a logical replication slot: a snapshot of each table first, then every transaction."""
