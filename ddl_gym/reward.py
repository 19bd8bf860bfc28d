"""What is an agent rewarded for? One small function per reward; each sums exactly to the metric it stands for.

Rewards are negative times divided by a unit that belongs to the episode's jobs alone, so they are comparable across traces and of the order
of 1 a job. With J jobs in an episode:

* "jct": -(integral over the interval of the jobs in the system) / (sum of the jobs' durations). The undiscounted return of a finished
  episode is -(mean JCT) / (mean duration).
* "makespan": -(length of the interval) / (lower bound of the makespan). The return is -makespan / lower bound, with the bound the
  greater of the longest job and all GPU-seconds on all GPUs.
* "mixed": jct_weight times the first plus (1 - jct_weight) times the second.

With baseline="auto_tuner" the same reward of the auto-tuner over the same interval is subtracted, and in the last step what the
auto-tuner still had to pay: the return is the improvement over it. A truncated episode pays only for its own time.
"""

import numpy as np
from numpy.typing import NDArray

from ddl_gym.jobs import JobTable


def units_s(jobs: JobTable, gpus: int) -> tuple[float, float]:
    """Units of "jct" (sum of durations) and of "makespan" (its lower bound) for an episode, seconds."""
    bound = max(float(jobs.duration_s.max()), float(jobs.gpus @ jobs.duration_s) / gpus)
    return float(jobs.duration_s.sum()), bound


def jct(job_seconds: NDArray[np.float64], unit_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) reward for job-seconds spent in the system during an interval."""
    return -job_seconds / unit_s


def makespan(elapsed_s: NDArray[np.float64], unit_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) reward for the seconds that an interval took."""
    return -elapsed_s / unit_s


def total(
    name: str,
    jct_weight: float,
    job_seconds: NDArray[np.float64],
    elapsed_s: NDArray[np.float64],
    units: NDArray[np.float64],
) -> NDArray[np.float64]:
    """(N,) the reward of that name; `units` (N, 2) as of `units_s`."""
    if name == "jct":
        return jct(job_seconds, units[:, 0])
    if name == "makespan":
        return makespan(elapsed_s, units[:, 1])
    return jct_weight * jct(job_seconds, units[:, 0]) + (1 - jct_weight) * makespan(elapsed_s, units[:, 1])
