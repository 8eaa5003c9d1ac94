"""Programs of the soak, each a process of its own."""
