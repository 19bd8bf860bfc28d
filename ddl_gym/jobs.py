"""What goes into the simulator and what comes out: one row a job, one array a column."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray


class JobTable(NamedTuple):
    """Training jobs in order of submission (ties keep their order); J jobs.

    Built by trace.py, formats.py and workload.py, which validate; `submit_s` is ascending and starts at 0.
    """

    job_id: NDArray[np.str_]  # (J,) unique name
    submit_s: NDArray[np.float64]  # (J,) seconds after the first submission
    gpus: NDArray[np.int64]  # (J,) gang size, at least 1
    duration_s: NDArray[np.float64]  # (J,) run time at the best tier the demand can have, without congestion; > 0
    model: NDArray[np.int64]  # (J,) row of `ddl_gym.models.CATALOGUE`
    user: NDArray[np.str_]  # (J,) user or virtual cluster, "" where unknown

    @property
    def jobs(self) -> int:
        """Number of jobs (`len()` of a NamedTuple counts its columns)."""
        return len(self.submit_s)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> "JobTable":
        """The same columns for some rows, times unchanged."""
        columns: dict[str, Any] = {name: column[rows] for name, column in self._asdict().items()}
        return JobTable(**columns)


class JobRecords(NamedTuple):
    """What happened to each job; J jobs. A time that has not come yet is NaN."""

    job_id: NDArray[np.str_]  # (J,)
    user: NDArray[np.str_]  # (J,)
    model: NDArray[np.int64]  # (J,)
    gpus: NDArray[np.int64]  # (J,)
    submit_s: NDArray[np.float64]  # (J,)
    duration_s: NDArray[np.float64]  # (J,) run time at its best tier without congestion
    start_s: NDArray[np.float64]  # (J,) first start
    finish_s: NDArray[np.float64]  # (J,)
    running_s: NDArray[np.float64]  # (J,) time holding GPUs, restores included
    restore_s: NDArray[np.float64]  # (J,) of which: restoring after a restart
    communication_s: NDArray[np.float64]  # (J,) of which: communication that compute did not hide
    lost_s: NDArray[np.float64]  # (J,) of which: unfinished iterations thrown away
    tier_s: NDArray[np.float64]  # (J, 3) running time at each `Tier`
    preemptions: NDArray[np.int64]  # (J,) times its GPUs were taken for another job
    moves: NDArray[np.int64]  # (J,) placement upgrades
    tier: NDArray[np.int64]  # (J,) tier of the last placement, NONE if it never started

    def to_frame(self) -> pd.DataFrame:
        """One row a job; `tier_s` becomes machine_tier_s, rack_tier_s and network_tier_s."""
        columns = {name: column for name, column in self._asdict().items() if name != "tier_s"}
        for index, name in enumerate(("machine_tier_s", "rack_tier_s", "network_tier_s")):
            columns[name] = self.tier_s[:, index]
        return pd.DataFrame(columns)
