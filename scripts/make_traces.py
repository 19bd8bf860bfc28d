"""Make the generated traces of traces/ anew, byte for byte.

python scripts/make_traces.py           write the files and print their statistics and checksums
python scripts/make_traces.py --check   write nothing; exit 1 if a file differs from what would be written
"""

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobTable
from ddl_gym.trace import BUNDLED, summarise, write_trace
from ddl_gym.workload import PRESETS

CLUSTER = ClusterSpec(racks=8, machines_per_rack=8, gpus_per_machine=8)
RECIPES = {"distributed_batch": "distributed_batch", "diurnal": "distributed_diurnal", "bursty": "distributed_bursty"}
SEEDS = {"distributed_batch": 1, "diurnal": 2, "bursty": 3}


def make(name: str) -> JobTable:
    """The jobs of a generated trace; times to 0.1 s, so that no byte depends on the last bits of a machine's exp()."""
    jobs = PRESETS[RECIPES[name]].generate(CLUSTER.gpus, SEEDS[name])
    return jobs._replace(submit_s=np.round(jobs.submit_s, 1), duration_s=np.round(jobs.duration_s, 1))


def make_bytes(name: str) -> bytes:
    """The content of the trace's file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.csv"
        write_trace(make(name), path)
        return path.read_bytes()


def main() -> int:
    """Write or compare every generated trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    check = parser.parse_args().check
    stale = 0
    for name in RECIPES:
        path, content = BUNDLED / f"{name}.csv", make_bytes(name)
        if check:
            same = path.exists() and path.read_bytes() == content
            stale += not same
            print(f"{path.name}: {'as made' if same else 'DIFFERS from what this script makes'}")
        else:
            path.write_bytes(content)
            print(f"{path.name}: sha256 {hashlib.sha256(content).hexdigest()}")
            for key, value in summarise(make(name), CLUSTER).items():
                print(f"  {key}: {value}")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main())
