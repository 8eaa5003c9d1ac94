"""Tables that are written to for a long time, maintained, meddled with, and cut off at any moment."""
