"""The doors: each translates what its users already write into values of the model, and no door imports another."""
