"""What does an episode run on? Jobs and network drawn from the settings' ranges with the environment's random numbers."""

from dataclasses import dataclass, replace
from math import exp, inf, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobTable
from ddl_gym.models import CATALOGUE
from ddl_gym.network import IterationTables, Network, Pairs, describe_pairs, tables_of_pairs
from ddl_gym.settings import SPLITS, Settings, bounds
from ddl_gym.trace import check_fits, offered_load, read_trace, resolve_trace, split
from ddl_gym.workload import PRESETS, Workload, demand_distribution

OPTIONS = ("trace_seed", "first_job", "load", "rack_congestion", "network_congestion", "congested_from_h")
MAX_DAYS = 900  # of a schedule of congested hours
_SEEDS = 2**31


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One draw: what the simulator needs, and the numbers that were drawn (JSON values, for `info`)."""

    jobs: JobTable
    tables: IterationTables
    drawn: dict[str, Any]


class ScenarioDrawer:
    """Draws episodes; the expensive parts (reading a trace, iteration times without congestion) are done once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cluster: ClusterSpec = settings.cluster_spec()
        self.workload, self.source = _source(settings, self.cluster)
        self.demands = _demands(
            self.workload, self.source, self.cluster
        )  # (D,) ascending, all that an episode may ask for
        models = len(CATALOGUE.name)
        self.pairs: Pairs = describe_pairs(
            np.repeat(self.demands, models), np.tile(np.arange(models), len(self.demands)), self.cluster
        )

    def draw(self, rng: np.random.Generator, options: dict[str, Any] | None = None) -> Episode:
        """Draw an episode; `options` fix what they name. Every draw is made in any case, so that they do not shift each other."""
        fixed = dict(options or {})
        for name in fixed:
            if name not in OPTIONS:
                raise ValueError(f"unknown reset option {name!r}; known: {', '.join(OPTIONS)}")
        for name, least in (
            ("load", 0.0),
            ("rack_congestion", 1.0),
            ("network_congestion", 1.0),
            ("congested_from_h", 0.0),
        ):
            value = fixed.get(name)
            number = isinstance(value, int | float) and least <= value < inf
            if value is not None and (not number or (name == "load" and value == 0)):
                raise ValueError(
                    f"reset option {name} is {value!r}, it must be a finite number of {least:g} or more (load above 0)"
                )
        settings = self.settings
        trace_seed = rng.integers(_SEEDS)
        drawn: dict[str, Any] = {"trace_seed": int(fixed.get("trace_seed", trace_seed))}
        place, load_at, rack_at, network_at, hour_at = rng.random(5)
        if settings.load is None:
            drawn["load"] = fixed.get("load")
        else:
            low, high = bounds(settings.load)
            drawn["load"] = float(fixed.get("load", low + (high - low) * load_at))
        for name, at in (("rack_congestion", rack_at), ("network_congestion", network_at)):
            low, high = bounds(getattr(settings, name))
            drawn[name] = float(fixed.get(name, exp(log(low) + (log(high) - log(low)) * at)))
        jobs = self._jobs(drawn, place, fixed)
        if settings.congested_hours is not None:
            drawn["congested_from_h"] = float(fixed.get("congested_from_h", 24.0 * hour_at))
        network = self._network(drawn, jobs)
        profile = np.searchsorted(self.demands, jobs.gpus) * len(CATALOGUE.name) + jobs.model
        return Episode(jobs=jobs, tables=tables_of_pairs(profile, self.pairs, self.cluster, network), drawn=drawn)

    def _jobs(self, drawn: dict[str, Any], place: float, fixed: dict[str, Any]) -> JobTable:
        settings = self.settings
        if self.workload is not None:
            offset = SPLITS.index(settings.split)  # seeds of different splits never meet
            seed = drawn["trace_seed"] * len(SPLITS) + offset
            workload = self.workload if drawn["load"] is None else replace(self.workload, load=drawn["load"])
            return workload.generate(self.cluster.gpus, seed)
        assert self.source is not None
        count = min(settings.jobs, self.source.jobs)
        last = self.source.jobs - count
        first = int(fixed.get("first_job", min(int(place * (last + 1)), last)))
        if not 0 <= first <= last:
            raise ValueError(f"first_job is {first}, the trace has episodes of {count} jobs from 0 to {last}")
        drawn["first_job"] = first
        jobs = self.source.take(slice(first, first + count))
        submit_s = jobs.submit_s - jobs.submit_s[0]
        if drawn["load"] is not None and submit_s[-1] > 0:
            submit_s = submit_s * (offered_load(jobs, self.cluster.gpus) / drawn["load"])
        return jobs._replace(submit_s=submit_s)

    def _network(self, drawn: dict[str, Any], jobs: JobTable) -> Network:
        rack, across = drawn["rack_congestion"], drawn["network_congestion"]
        hours = self.settings.congested_hours
        if hours is None:
            return Network(rack_congestion=rack, network_congestion=across)
        start, end, factor = hours
        drawn["congested_from_h"] %= 24.0
        begins_s = drawn["congested_from_h"] * 3_600.0
        days = int((jobs.submit_s[-1] + 4 * jobs.duration_s.max() + begins_s) // 86_400) + 2
        if days > MAX_DAYS:
            raise ValueError(
                f"congested_hours: the episode may last {days} days, more than the {MAX_DAYS} that are supported"
            )
        factors: dict[float, float] = {}
        for day in range(days):
            factors[day * 86_400.0 + start * 3_600.0 - begins_s] = factor
            if end - start < 24:
                factors[day * 86_400.0 + end * 3_600.0 - begins_s] = 1.0
        rows = tuple((from_s, rack, across * times) for from_s, times in sorted(factors.items()) if from_s > 0)
        hour = drawn["congested_from_h"] % 24
        busy_now = factor if start <= hour < end else 1.0
        return Network(rack_congestion=rack, network_congestion=across * busy_now, schedule=rows)


def _demands(workload: Workload | None, source: JobTable | None, cluster: ClusterSpec) -> NDArray[np.int64]:
    if source is not None:
        return np.unique(source.gpus)
    assert workload is not None
    demands = demand_distribution(workload.demand)[0]
    return demands[demands <= cluster.gpus]


def _source(settings: Settings, cluster: ClusterSpec) -> tuple[Workload | None, JobTable | None]:
    """The generator, or the part of the file that the split leaves."""
    if not isinstance(settings.trace, str):
        try:
            workload = Workload(**{"jobs": settings.jobs} | dict(settings.trace))
        except TypeError as error:
            raise ValueError(f"trace: {error}") from None
        return workload, None
    if settings.trace in PRESETS:
        return replace(PRESETS[settings.trace], jobs=settings.jobs), None
    jobs = read_trace(resolve_trace(settings.trace)).jobs
    check_fits(jobs, cluster)
    if settings.split != "all":
        jobs = split(jobs)[SPLITS.index(settings.split) - 1]
    return None, jobs
