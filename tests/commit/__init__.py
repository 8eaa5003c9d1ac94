"""The commit loop on a table in memory: every interleaving and every fault, and the contract that each real port shares."""

import pytest

pytest.register_assert_rewrite("commit.contract")
