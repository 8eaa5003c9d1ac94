"""A flow as a process of its own: ``flow_program.py FOLDER COUNT PROCESS PORT... -- MOMENT NTH ACT``.

One of a cluster of as many processes as there are ports, with two workers each; alone without ports, with one.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from bytewax.testing import cluster_main
from flows import Numbers, Pond

from exactly_once.programs.moments import act_at

SPARK = {"master": "local[1]", "conf": {"spark.driver.memory": "512m"}}

if __name__ == "__main__":
    place, many, process, *ports = sys.argv[1 : sys.argv.index("--")]
    moment = sys.argv[sys.argv.index("--") + 1 :]
    if moment:
        act_at(moment[0], int(moment[1]), moment[2])
    pond = Pond(Path(place), {"extra_options": {"spark": SPARK}})
    flow = pond.flow(Numbers(int(many)), num_partitions=4, batch_size=1)
    cluster_main(
        flow,
        [f"127.0.0.1:{port}" for port in ports],
        int(process),
        epoch_interval=timedelta(0),
        recovery_config=pond.recovery,
        worker_count_per_proc=2 if ports else 1,
    )
