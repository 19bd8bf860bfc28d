"""What came of a run? Records to metrics, each defined here once.

Times in seconds. Only finished jobs count for JCT, slowdown and fairness; `unfinished` says how many are missing.
"""

from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobRecords


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Metrics of one run; NaN where undefined (None in `to_dict`)."""

    jobs: int
    unfinished: int
    makespan_s: float  # last finish - first submission
    mean_jct_s: float  # JCT: finish - submission
    median_jct_s: float
    p95_jct_s: float
    p99_jct_s: float
    mean_queueing_s: float  # queueing delay: first start - submission, of jobs that started
    median_queueing_s: float
    p95_queueing_s: float
    p99_queueing_s: float
    mean_waiting_s: float  # total waiting: JCT - running time
    communication_s: float  # GPU-seconds of communication that compute did not hide
    communication_share: float  # of the GPU-seconds that jobs held
    utilization: float  # GPU-seconds held / (GPUs x makespan)
    useful_share: float  # GPU-seconds held without restores and lost iterations / (GPUs x makespan)
    preemptions: int
    moves: int
    restore_s: float  # GPU-seconds restoring
    lost_s: float  # GPU-seconds of iterations thrown away
    machine_jobs_share: float  # jobs by the tier of their last placement
    rack_jobs_share: float
    network_jobs_share: float
    machine_time_share: float  # GPU-seconds held, by tier
    rack_time_share: float
    network_time_share: float
    mean_slowdown: float  # JCT / run time at the best tier without congestion
    p99_slowdown: float
    mean_fairness: float  # finish-time fairness rho: see `finish_time_fairness`

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            name: None if isinstance(value, float) and isnan(value) else value for name, value in asdict(self).items()
        }


def finish_time_fairness(records: JobRecords, cluster: ClusterSpec) -> NDArray[np.float64]:
    """(J,) rho = JCT / time the job would take alone on its fair share of the cluster (Themis, Mahajan et al., NSDI'20).

    The share is GPUs / N for the N jobs in the system on average between its submission and finish; on a share smaller than its demand a
    job is slowed in proportion. 1 or less is fair; NaN for unfinished jobs.
    """
    finish_s = records.finish_s
    done = ~np.isnan(finish_s)
    rho = np.full(len(finish_s), np.nan)
    if not done.any():
        return rho
    end_s = np.where(done, finish_s, np.inf)
    times_s = np.unique(np.concatenate([records.submit_s, end_s[done]]))
    arrived = np.searchsorted(records.submit_s, times_s, side="right")
    left = np.searchsorted(np.sort(end_s), times_s, side="right")
    present = np.concatenate([[0.0], np.cumsum((arrived - left)[:-1] * np.diff(times_s))])
    jct_s = finish_s - records.submit_s
    in_between = np.interp(finish_s[done], times_s, present) - np.interp(records.submit_s[done], times_s, present)
    mean_present = np.maximum(1.0, in_between / np.maximum(jct_s[done], 1e-9))
    share = np.minimum(1.0, cluster.gpus / mean_present / records.gpus[done])
    rho[done] = jct_s[done] / (records.duration_s[done] / share)
    return rho


def summarise(records: JobRecords, cluster: ClusterSpec) -> Summary:
    """All metrics of one run."""
    done = ~np.isnan(records.finish_s)
    started = ~np.isnan(records.start_s)
    jct_s = (records.finish_s - records.submit_s)[done]
    queueing_s = (records.start_s - records.submit_s)[started]
    held = float(records.gpus @ records.running_s)
    restore_s, lost_s = float(records.gpus @ records.restore_s), float(records.gpus @ records.lost_s)
    communication_s = float(records.gpus @ records.communication_s)
    makespan_s = float(records.finish_s[done].max() - records.submit_s.min()) if done.any() else nan
    available = cluster.gpus * makespan_s
    tier_time = records.gpus @ records.tier_s
    tier_jobs = np.bincount(records.tier[started], minlength=3)
    slowdown = jct_s / records.duration_s[done]
    return Summary(
        jobs=len(done),
        unfinished=int((~done).sum()),
        makespan_s=makespan_s,
        mean_jct_s=_mean(jct_s),
        median_jct_s=_quantile(jct_s, 0.5),
        p95_jct_s=_quantile(jct_s, 0.95),
        p99_jct_s=_quantile(jct_s, 0.99),
        mean_queueing_s=_mean(queueing_s),
        median_queueing_s=_quantile(queueing_s, 0.5),
        p95_queueing_s=_quantile(queueing_s, 0.95),
        p99_queueing_s=_quantile(queueing_s, 0.99),
        mean_waiting_s=_mean(jct_s - records.running_s[done]),
        communication_s=communication_s,
        communication_share=communication_s / held if held > 0 else nan,
        utilization=held / available if available > 0 else nan,
        useful_share=(held - restore_s - lost_s) / available if available > 0 else nan,
        preemptions=int(records.preemptions.sum()),
        moves=int(records.moves.sum()),
        restore_s=restore_s,
        lost_s=lost_s,
        **_shares(tier_jobs, "jobs"),
        **_shares(tier_time, "time"),
        mean_slowdown=_mean(slowdown),
        p99_slowdown=_quantile(slowdown, 0.99),
        mean_fairness=_mean(finish_time_fairness(records, cluster)[done]),
    )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) > 0 else nan


def _quantile(values: NDArray[np.float64], q: float) -> float:
    return float(np.quantile(values, q)) if len(values) > 0 else nan


def _shares(amounts: NDArray[Any], of: str) -> dict[str, Any]:
    total = amounts.sum()
    names = ("machine", "rack", "network")
    return {
        f"{name}_{of}_share": float(amount / total) if total > 0 else nan
        for name, amount in zip(names, amounts, strict=True)
    }
