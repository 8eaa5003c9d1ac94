"""Files of users as values with their places: YAML is read, checked against models, and errors are reported at their lines.

Every door that takes a YAML file reads it with this. What one form of file has of its own is its :class:`Dialect`.
"""

from __future__ import annotations
