"""The real engine loses no row, doubles none and leaves no file missing: faulty catalogs, killed processes, second instances."""

import pytest

pytest.register_assert_rewrite("exactly_once.truth", "exactly_once.children")
