"""What people and machines see of a run: metrics, health, logs, progress. Each listens to the engine's events."""
