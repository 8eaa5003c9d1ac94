"""For tests of your own pipelines: a lake in a temporary folder, and a source that is written down in the test.

::

    from frazil.testing import ABORT, Aborted, ScriptedSource, TemporaryLake

    def test_a_crash_loses_and_doubles_nothing():
        source = ScriptedSource([{"id": 1}, ABORT("staged"), {"id": 2}])
        with TemporaryLake() as lake:
            with pytest.raises(Aborted):
                lake.run("pipeline.yaml", source)
            lake.run("pipeline.yaml", source)
            assert lake.rows("sales.orders") == [{"id": 1}, {"id": 2}]

No service is needed. The first lake of a process starts a local Spark, which the others use, too.
"""

from frazil.testing.lake import TemporaryLake
from frazil.testing.script import ABORT, BATCH, DELETE, EOF, Aborted, ScriptedSource

__all__ = ["ABORT", "BATCH", "DELETE", "EOF", "Aborted", "ScriptedSource", "TemporaryLake"]
