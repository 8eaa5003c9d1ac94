"""Which type a column has, and how a value gets there."""
