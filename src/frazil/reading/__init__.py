"""Files of users as values with their places: YAML is read, checked against models, and what is wrong is told at its line.

Every door that takes a YAML file reads it with this. What one form of file has of its own is its :class:`Dialect`.
"""

from __future__ import annotations
