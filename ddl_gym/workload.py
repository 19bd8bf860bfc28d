"""How are jobs made up when there is no trace? From published distributions of duration, demand and arrivals."""

from dataclasses import dataclass, replace
from math import isfinite
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ddl_gym.jobs import JobTable
from ddl_gym.models import assign_models

# Durations of GPU jobs, s, at these quantiles (venus to uranus start at 0.1). Digitised from the published figures:
# AcmeTrace (Hu et al., NSDI'24) figure/cdf_job_duration_util.pdf for philly to kalos, HeliosArtifact (Hu et al., SC'21)
# job_cdf_jobtime.pdf for venus to uranus.
_QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
DURATIONS: dict[str, tuple[float, ...]] = {
    "philly": (20, 36, 108, 853, 3_186, 15_822, 68_672, 413_583),
    "helios": (2, 14, 64, 201, 1_001, 6_969, 20_661, 145_779),
    "pai": (19, 28, 90, 484, 3_095, 11_386, 22_677, 64_882),
    "seren": (3, 7, 18, 134, 413, 1_352, 3_269, 27_528),
    "kalos": (18, 23, 40, 125, 380, 1_546, 2_938, 13_714),
    "venus": (17, 70, 209, 1_328, 17_891, 59_514, 283_877),
    "earth": (69, 146, 233, 825, 7_326, 14_913, 96_525),
    "saturn": (3, 32, 123, 895, 5_100, 14_113, 118_830),
    "uranus": (21, 72, 285, 1_303, 10_845, 38_839, 194_063),
}

# GPUs: (% of jobs, % of GPU time) with at most so many GPUs. Digitised from the same two repositories' demand figures.
# What is left above the last point is put on the next power of two.
_DEMAND_CDF: dict[str, dict[int, tuple[float, float]]] = {
    "philly": {1: (82.4, 16.4), 2: (84.5, 19.4), 4: (92.0, 38.2), 8: (98.9, 88.0), 16: (99.8, 97.2), 32: (100, 100)},
    "helios": {1: (72.2, 5.4), 2: (74.7, 7.2), 4: (80.5, 12.1), 8: (94.7, 41.3), 16: (97.7, 61.5), 32: (99.4, 86.6)}
    | {64: (99.7, 94.4), 128: (99.9, 97.5), 512: (100, 100)},
    "venus": {1: (51.8, 4.6), 2: (57.4, 8.0), 4: (64.8, 12.8), 8: (90.0, 42.1), 16: (94.1, 58.3), 32: (97.7, 83.4)}
    | {64: (98.7, 90.9)},
    "earth": {1: (89.2, 11.5), 2: (90.0, 12.6), 4: (92.1, 18.8), 8: (97.5, 46.7), 16: (99.1, 66.8), 32: (99.7, 83.9)}
    | {64: (99.9, 91.1)},
    "saturn": {1: (68.2, 5.4), 2: (71.0, 7.1), 4: (79.3, 12.7), 8: (94.9, 40.2), 16: (97.4, 57.7), 32: (99.3, 84.2)}
    | {64: (99.7, 92.9)},
    "uranus": {1: (66.3, 3.3), 2: (69.4, 4.5), 4: (73.7, 8.4), 8: (92.3, 39.8), 16: (97.9, 64.6), 32: (99.6, 91.8)}
    | {64: (99.9, 98.9)},
    "seren": {1: (54.0, 1.4), 2: (65.4, 1.8), 4: (67.9, 2.4), 8: (96.7, 11.9), 16: (97.9, 13.2), 32: (98.8, 19.1)}
    | {64: (99.3, 27.6), 128: (99.6, 41.7), 512: (99.8, 67.0)},
    "kalos": {1: (86.3, 0.1), 2: (88.4, 0.1), 4: (88.4, 0.2), 8: (93.9, 0.6), 16: (94.3, 0.6), 32: (94.6, 2.0)}
    | {64: (95.3, 3.3), 128: (95.7, 3.7), 512: (98.1, 50.8)},
    "pai": {1: (97.1, 68.1), 2: (98.6, 72.9), 4: (99.1, 78.7), 8: (100, 100)},
}

# Share of jobs by GPUs, without GPU time. gavel: generate_trace.py of stanford-futuredata/gavel. muri_t1 to muri_t4:
# counted in the Philly-derived traces published with Muri (Zhao et al., SIGCOMM'22); t3 is the most distributed.
_DEMAND_SHARES: dict[str, dict[int, float]] = {
    "gavel": {1: 0.70, 2: 0.10, 4: 0.20},
    "muri_t1": {1: 0.36, 2: 0.003, 4: 0.28, 8: 0.31, 16: 0.03, 32: 0.02},
    "muri_t2": {1: 0.41, 2: 0.03, 4: 0.16, 8: 0.32, 16: 0.07, 32: 0.01},
    "muri_t3": {1: 0.14, 2: 0.02, 4: 0.03, 8: 0.70, 16: 0.003, 32: 0.11},
    "muri_t4": {1: 0.64, 2: 0.10, 4: 0.23, 8: 0.03},
}
DEMANDS: tuple[str, ...] = (*_DEMAND_CDF, *_DEMAND_SHARES)

# Submissions relative to the mean by hour of day (0 to 23) and by day (Monday to Sunday) in Helios Venus: computed from
# data/Venus/cluster_throughput.csv of S-Lab-System-Group/Lucid (April to September 2020, 125,214 jobs).
HOURLY_RATE = (
    *(0.90, 0.66, 0.60, 0.38, 0.27, 0.21, 0.19, 0.22, 0.37, 0.80, 1.29, 1.47),
    *(1.16, 1.30, 1.56, 1.66, 1.73, 1.73, 1.28, 1.31, 1.34, 1.36, 1.15, 1.04),
)
DAILY_RATE = (1.02, 1.11, 1.27, 1.20, 0.95, 0.68, 0.77)
# Same source: hourly counts scatter like a negative binomial of shape 0.75 (variance / mean 39.3 at 28.8 jobs an
# hour). The profile above explains a part of it; `_burst_shape` is the shape of the gamma factor for the rest.
HOURLY_SHAPE = 0.75

ARRIVALS = ("batch", "poisson", "diurnal", "bursty")
_CENTURY_S = 100 * 365.25 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A recipe for job tables; every field is a JSON value.

    Durations: log time is interpolated linearly in the normal score between the published quantiles and continued so
    on both sides (lognormal pieces; beyond the 99th percentile sigma is 1.5 to 3.1, a heavy tail with a finite mean).
    What exceeds `max_duration_s` ends there, as under a time limit. With the default of 7 days the mean lies within
    15 % of the published one for all presets but seren (+31 %) and kalos (-23 %).

    `demand_dependence` d multiplies the duration at each demand by (mean duration there / overall mean)^d, the means
    being those that the published shares of GPU time imply. 0: duration and demand are independent. 1: GPU time is
    shared among demands as published and the mean duration kept (both before the limit), but the quantiles of duration
    are then no longer the published ones: the sources give no joint distribution. Not for gavel and muri_*, whose GPU
    time is not published.

    Arrivals: "batch" all at 0; "poisson"; "diurnal" Poisson whose rate follows Venus' hours and weekdays, 0 being
    Monday 00:00; "bursty" the same with an independent gamma factor each hour, so that hourly counts scatter as Venus'
    do. (Venus' bursts also last: its hourly autocorrelation of 0.48 is only reproduced as far as the profile goes.)
    """

    jobs: int = 1_000
    arrivals: str = "poisson"
    load: float = 0.9  # offered load (trace.offered_load), met exactly; without meaning for a batch
    duration: str = "philly"  # key of DURATIONS
    max_duration_s: float = 604_800.0
    demand: str = "philly"  # one of DEMANDS
    min_gpus: int = 1  # smaller demands are left out, the others keep their proportions
    max_gpus: int | None = None  # likewise; None: what the cluster holds
    demand_dependence: float = 0.0
    mix: str = "default"  # of models, see ddl_gym.models

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        for field, known in (("arrivals", ARRIVALS), ("duration", tuple(DURATIONS)), ("demand", DEMANDS)):
            if getattr(self, field) not in known:
                raise ValueError(f"workload: unknown {field} {getattr(self, field)!r}; known: {', '.join(known)}")
        if self.jobs < (1 if self.arrivals == "batch" else 2):
            raise ValueError(
                f"workload: jobs is {self.jobs}, {self.arrivals} arrivals need {1 if self.arrivals == 'batch' else 2}"
            )
        for field in ("load", "max_duration_s"):
            if not (isfinite(getattr(self, field)) and getattr(self, field) > 0):
                raise ValueError(f"workload: {field} is {getattr(self, field)}, it must be positive and finite")
        if self.max_duration_s < 1:
            raise ValueError(f"workload: max_duration_s is {self.max_duration_s}, no job is shorter than 1 s")
        if self.min_gpus < 1 or (self.max_gpus is not None and self.max_gpus < self.min_gpus):
            raise ValueError(f"workload: min_gpus {self.min_gpus} and max_gpus {self.max_gpus} leave no demand")
        if not 0 <= self.demand_dependence <= 1:
            raise ValueError(f"workload: demand_dependence is {self.demand_dependence}, it must be in [0, 1]")
        if self.demand_dependence > 0 and self.demand not in _DEMAND_CDF:
            raise ValueError(
                f"workload: demand {self.demand!r} has no published GPU time, so demand_dependence must be 0"
            )

    def generate(self, cluster_gpus: int, seed: int) -> JobTable:
        """The jobs of that seed for a cluster of that many GPUs; larger demands than it holds are left out.

        Submissions are stretched so that the first is at 0 and the last at work / (load x cluster_gpus): the offered
        load is met exactly. The same seed draws the same demands, durations and models whatever the arrivals and the
        load. PCG64; the last bits of durations are those of the machine's exp().
        """
        demand_rng, duration_rng, arrival_rng = (
            np.random.Generator(np.random.PCG64(child)) for child in np.random.SeedSequence(seed).spawn(3)
        )
        demands, shares, factors = self._demands(cluster_gpus)
        drawn = demand_rng.choice(len(demands), size=self.jobs, p=shares)
        gpus = demands[drawn]
        duration_s = sample_durations(self.duration, self.jobs, duration_rng) * factors[drawn] ** self.demand_dependence
        duration_s = np.clip(duration_s, 1.0, self.max_duration_s)
        span_s = float(gpus @ duration_s) / (self.load * cluster_gpus)
        return JobTable(
            job_id=np.char.add("job", np.arange(1, self.jobs + 1).astype(f"U{len(str(self.jobs))}")),
            submit_s=_submissions(self.arrivals, self.jobs, span_s, arrival_rng),
            gpus=gpus,
            duration_s=duration_s,
            model=assign_models(gpus, self.mix, seed),
            user=np.full(self.jobs, "", dtype=np.str_),
        )

    def _demands(self, cluster_gpus: int) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """(D,) demands, their shares of jobs, mean duration at each relative to the mean over all."""
        demands, shares, gpu_time = demand_distribution(self.demand)
        most = cluster_gpus if self.max_gpus is None else min(self.max_gpus, cluster_gpus)
        kept = (demands >= self.min_gpus) & (demands <= most) & (shares > 0)
        if not kept.any():
            raise ValueError(
                f"workload: demand {self.demand!r} has no job of {self.min_gpus} to {most} GPUs"
                f" (the cluster has {cluster_gpus})"
            )
        demands, shares, gpu_time = demands[kept], shares[kept] / shares[kept].sum(), gpu_time[kept]
        mean = gpu_time / (shares * demands)
        return demands, shares, mean / (shares @ mean)


def demand_distribution(name: str) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """(D,) GPUs ascending, (D,) share of jobs, (D,) share of GPU time (unpublished: as if independent of duration)."""
    if name in _DEMAND_SHARES:
        demands = np.array(list(_DEMAND_SHARES[name]), np.int64)
        shares = np.array(list(_DEMAND_SHARES[name].values()))
        return demands, shares / shares.sum(), shares * demands / (shares @ demands)
    points = dict(_DEMAND_CDF[name])
    last = max(points)
    if points[last][0] < 100:
        points[2 * last] = (100.0, 100.0)
    jobs, gpu_time = np.diff(np.array([(0.0, 0.0), *points.values()]), axis=0).T / 100
    return np.array(list(points), np.int64), jobs, gpu_time


def sample_durations(name: str, jobs: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(jobs,) durations in seconds of a preset of DURATIONS, without limits."""
    log_s = np.log(DURATIONS[name])
    scores = np.array([NormalDist().inv_cdf(q) for q in _QUANTILES[-len(log_s) :]])
    slopes = np.diff(log_s) / np.diff(scores)
    z = rng.standard_normal(jobs)
    piece = np.clip(np.searchsorted(scores, z) - 1, 0, len(slopes) - 1)
    durations: NDArray[np.float64] = np.exp(log_s[piece] + slopes[piece] * (z - scores[piece]))
    return durations


def _submissions(arrivals: str, jobs: int, span_s: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """(jobs,) ascending times, first 0 and last span_s: a Poisson process bent by the relative rate of each hour."""
    if arrivals == "batch":
        return np.zeros(jobs)
    if span_s > _CENTURY_S:
        raise ValueError(
            f"workload: the submissions would span {span_s:.3g} s, more than 100 years; raise the load or the GPUs"
        )
    position = np.concatenate([[0.0], np.cumsum(rng.standard_exponential(jobs - 1))])
    position /= position[-1]
    if arrivals == "poisson":
        return position * span_s
    hours = np.arange(np.ceil(span_s / 3600.0), dtype=np.int64)
    rate = np.array(HOURLY_RATE)[hours % 24] * np.array(DAILY_RATE)[hours // 24 % 7]
    if arrivals == "bursty":
        shape = _burst_shape()
        rate *= rng.gamma(shape, 1 / shape, len(hours))
    edges_s = np.minimum(np.append(hours, len(hours)) * 3600.0, span_s)
    expected = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges_s))])
    submit_s: NDArray[np.float64] = np.interp(position * expected[-1], expected, edges_s)
    return submit_s


def _burst_shape() -> float:
    """Shape r of the gamma factor: 1 + 1 / HOURLY_SHAPE = (1 + squared variation of the profile) (1 + 1 / r)."""
    profile = np.outer(DAILY_RATE, HOURLY_RATE)
    spread = profile.var() / profile.mean() ** 2
    return float(1 / ((1 + 1 / HOURLY_SHAPE) / (1 + spread) - 1))


# Half of Venus' jobs ask for one GPU and no timer concerns them; these workloads are the other half.
_DISTRIBUTED = Workload(duration="venus", demand="venus", min_gpus=2, max_duration_s=4 * 86_400.0)

PRESETS: dict[str, Workload] = {
    "philly_batch": Workload(arrivals="batch"),
    "philly_poisson": Workload(),
    "helios_diurnal": Workload(arrivals="diurnal", duration="helios", demand="helios", demand_dependence=1.0),
    "venus_bursty": Workload(arrivals="bursty", duration="venus", demand="venus"),
    "pai_diurnal": Workload(arrivals="diurnal", duration="pai", demand="pai"),
    "seren_diurnal": Workload(arrivals="diurnal", duration="seren", demand="seren"),
    "gavel_poisson": Workload(demand="gavel"),
    "muri_poisson": Workload(demand="muri_t1"),
    "distributed_batch": Workload(arrivals="batch", demand="muri_t3", min_gpus=2, max_duration_s=2 * 86_400.0),
    "distributed_diurnal": replace(_DISTRIBUTED, arrivals="diurnal"),
    "distributed_bursty": replace(_DISTRIBUTED, arrivals="bursty", load=1.1),
    # Short enough that a few hundred jobs fill a cluster: the environments' default.
    "distributed_short": replace(_DISTRIBUTED, max_duration_s=6 * 3_600.0, max_gpus=64),
}
