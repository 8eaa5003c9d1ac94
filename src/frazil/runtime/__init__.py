"""What drives a source into a sink, and what else can be asked of a pipeline."""
