"""How are many simulators reset and advanced together? Every environment, single or vectorised, is a fleet of rows.

The rows' arrays lie side by side (`ddl_gym.world`); one compiled call without the GIL advances a shard of them, a thread a shard. With
a baseline, row i + rows is the auto-tuner's run of the same episode.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddl_gym import actions, kernel, reward
from ddl_gym.cluster import NONE
from ddl_gym.jobs import JobRecords, JobTable
from ddl_gym.metrics import summarise
from ddl_gym.models import CATALOGUE
from ddl_gym.observation import feature_names, observe_rows
from ddl_gym.scenario import ScenarioDrawer
from ddl_gym.settings import Settings
from ddl_gym.simulator import records_of
from ddl_gym.world import Sizes, allocate, fill, world_row

_STEPS = 2_000  # network steps that a row has room for: more than two years of daily congestion
_SMALL = 16  # fleets up to this size are not worth a second thread


@dataclass(frozen=True)
class Outcome:
    """What a step brought, a row each; (N,) arrays."""

    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


class Fleet:
    """`rows` simulators of one environment kind: "timers", "classes" or "offers"."""

    def __init__(self, settings: Settings, kind: str, rows: int, threads: int = 1) -> None:
        self.settings, self.kind, self.rows = settings, kind, rows
        self.drawer = ScenarioDrawer(settings)
        self.cluster = self.drawer.cluster
        residual = settings.action_mode == "residual" and kind != "offers"
        self.policy = settings.policy()
        self._tuner_mode = 1 if residual else 2
        self._threads = max(1, min(threads, rows // _SMALL))
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None
        self.feature_names = feature_names(self.policy, job_offer=kind == "offers")
        self.jobs: list[JobTable | None] = [None] * rows
        self.drawn: list[dict[str, Any]] = [{} for _ in range(rows)]
        worlds = rows * (2 if settings.baseline else 1)
        self.worlds = allocate(self._sizes(), worlds)
        self.observations = np.zeros((rows, len(self.feature_names)), np.float32)
        self.decisions = np.zeros(rows, np.int64)
        self.returns = np.zeros(rows)
        self.active = np.zeros(rows, np.bool_)  # in an episode
        self._units = np.ones((rows, 2))
        self._before = np.zeros((rows, 2))  # jobs submitted and finished at the last decision
        self._spent = np.zeros((worlds, 2))  # job-seconds in the system and seconds that no reward has paid for yet
        self._until_s = np.zeros(worlds)
        self._status = np.zeros(worlds, np.int64)
        self._look()

    def _sizes(self) -> Sizes:
        settings, policy, cluster = self.settings, self.policy, self.cluster
        source = self.drawer.source
        jobs = settings.jobs if self.drawer.workload is None else self.drawer.workload.jobs
        jobs = min(jobs, source.jobs) if source is not None else jobs
        service_bins = len(policy.service_edges) + 1
        groups = len(self.drawer.demands) * (len(policy.sensitivity_edges) + 1)
        return Sizes(
            jobs=jobs,
            buckets=groups * service_bins,
            positions=4
            * jobs
            * service_bins,  # a capacity is the next power of two of at most twice the jobs of its group
            profiles=len(self.drawer.demands) * len(CATALOGUE.name),
            network_states=2,
            network_steps=_STEPS if settings.congested_hours else 1,
            classes=policy.classes,
            window=policy.tuner_window,
            racks=cluster.racks,
            machines_per_rack=cluster.machines_per_rack,
            gpus_per_machine=cluster.gpus_per_machine,
            las_edges=len(policy.las_edges),
            service_edges=len(policy.service_edges),
        )

    def reset(self, row: int, rng: np.random.Generator, options: dict[str, Any] | None = None) -> None:
        """Begin an episode in one row and go to its first decision; `observe` afterwards."""
        episode = self.drawer.draw(rng, options)
        self.jobs[row], self.drawn[row] = episode.jobs, episode.drawn
        self._units[row] = reward.units_s(episode.jobs, self.cluster.gpus)
        for index in range(row, len(self._spent), self.rows):
            world = world_row(self.worlds, index)
            fill(world, self.cluster, episode.jobs, self.policy, episode.tables, self.settings.restore_s)
            self._spent[index] = 0.0
        agent = world_row(self.worlds, row)
        agent.rules[0].auto_tuner = self._tuner_mode
        agent.rules[0].asks = self.kind == "offers"
        self.decisions[row], self.returns[row], self.active[row] = 0, 0.0, True
        self._before[row] = 0.0
        if self.kind == "offers":
            self._until_s[row] = inf
            self._advance(row, row + 1)

    def _look(self) -> None:
        """Views of the fields that every step reads."""
        clock, timers = self.worlds.clock, self.worlds.timers
        names = ("now", "next_job", "finished", "job_seconds", "asked_job", "stale", "preemption_margin")
        self._clock = {name: clock[name][:, 0] for name in names}
        self._timers = {name: timers[name][: self.rows] for name in ("timer_s", "factor", "offset_s")}
        self._jobs_of = self.worlds.rules["jobs"][: self.rows, 0]

    # Actions, for all rows; those not in an episode do not matter.

    def set_timers(self, components: NDArray[np.float64]) -> None:
        """Set the delay timers of all rows from components in [-1, 1] that broadcast to (N, C, 2)."""
        if self._tuner_mode == 1:  # the kernel puts them in force, now and at each round
            self._timers["factor"][...], self._timers["offset_s"][...] = actions.residual_terms(
                components, self.settings
            )
        else:
            timers_s = self._timers["timer_s"]
            timers_s[...] = actions.absolute_timer_s(components, self.settings.absolute_scale_s)
            np.maximum(timers_s[..., 0], timers_s[..., 1], out=timers_s[..., 1])
        self._clock["stale"][: self.rows] = 1

    def set_margins(self, components: NDArray[np.float64]) -> None:
        """Set the preemption margins from components (N,) in [-1, 1]."""
        self._clock["preemption_margin"][: self.rows] = actions.margin(components, self.settings)

    @property
    def asked(self) -> NDArray[np.bool_]:
        """(N,) whether a row asks about an offer."""
        asked: NDArray[np.bool_] = self._clock["asked_job"][: self.rows] != NONE
        return asked

    def answer(self, accept: NDArray[np.bool_]) -> None:
        """Answer the offers that the rows ask about, (N,)."""
        kernel.answer_rows(self.worlds, 0, self.rows, accept)

    # Time.

    def step(self) -> Outcome:
        """Go to the next decision of each row in an episode; pays rewards and says which episodes ended."""
        rows, active, until_s = self.rows, self.active, self._until_s
        self._before[:, 0] = self._clock["next_job"][:rows]
        self._before[:, 1] = self._clock["finished"][:rows]
        interval_s = inf if self.kind == "offers" else self.settings.decision_s
        until_s[:rows] = np.where(active, self._clock["now"][:rows] + interval_s, self._clock["now"][:rows])
        self._advance(0, rows)
        self.decisions += active
        terminated = active & (self._status[:rows] == kernel.DONE)
        truncated = active & ~terminated & (self.decisions >= self.settings.max_decisions)
        rewards = self._pay(slice(0, rows))
        if self.settings.baseline:
            now_s, reference_s = self._clock["now"][:rows], self._clock["now"][rows:]
            until_s[rows:] = np.where(active, np.maximum(np.where(terminated, inf, now_s), reference_s), reference_s)
            self._advance(rows, 2 * rows)
            rewards -= self._pay(slice(rows, 2 * rows))
        rewards *= active
        self.returns += rewards
        self.active = active & ~(terminated | truncated)
        return Outcome(rewards, terminated, truncated)

    def _pay(self, rows: slice) -> NDArray[np.float64]:
        spent = self._spent[rows]
        rewards = reward.total(self.settings.reward, self.settings.jct_weight, spent[:, 0], spent[:, 1], self._units)
        spent[...] = 0.0
        return rewards

    def _advance(self, first: int, end: int) -> None:
        self._shards(
            lambda a, b: kernel.advance_rows(self.worlds, a, b, self._until_s, self._status, self._spent), first, end
        )
        if (self._status[first:end] == kernel.LIMIT).any():
            raise RuntimeError(
                f"{kernel.ROW_LIMIT:,} instants in one step and no end: preemption leaves jobs no time for a restore and one "
                "iteration; lower the congestion, or raise quantum_s or preemption_margin"
            )

    def observe(self) -> NDArray[np.float32]:
        """(N, F) what the agents see now, the same at each call until the next step; the array is overwritten by it."""
        self._shards(lambda a, b: observe_rows(self.worlds, a, b, self._before, self.observations), 0, self.rows)
        return self.observations

    def _shards(self, work: Callable[[int, int], None], first: int, end: int) -> None:
        """Run compiled work on contiguous shards of rows, each in its thread; the result does not depend on their number."""
        if self._pool is None:
            work(first, end)
            return
        edges = np.linspace(first, end, self._threads + 1).astype(int).tolist()
        for future in [self._pool.submit(work, a, b) for a, b in pairwise(edges)]:
            future.result()

    # What came of it.

    def now_s(self, row: int) -> float:
        """The clock of a row."""
        return float(self._clock["now"][row])

    def records(self, row: int) -> JobRecords:
        """Records of a row's present or last episode."""
        jobs = self.jobs[row]
        assert jobs is not None
        return records_of(world_row(self.worlds, row), jobs)

    def summary(self, row: int) -> dict[str, Any]:
        """The metrics of a row's present or last episode, with the agent's return and decisions; JSON values."""
        metrics = summarise(self.records(row), self.cluster).to_dict()
        return metrics | {"return": float(self.returns[row]), "decisions": int(self.decisions[row])}

    def get_state(self, rows: Sequence[int]) -> dict[str, Any]:
        """Copies of everything that some rows hold."""
        worlds = [index for row in rows for index in range(row, len(self._spent), self.rows)]
        names = ("decisions", "returns", "active", "observations", "_units", "_before")
        return {
            "rows": list(rows),
            "worlds": {name: column[worlds] for name, column in self.worlds._asdict().items()},
            "spent": self._spent[worlds],
            "row_arrays": {name: getattr(self, name)[list(rows)] for name in names},
            "jobs": [self.jobs[row] for row in rows],
            "drawn": [dict(self.drawn[row]) for row in rows],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state taken from a fleet of the same settings."""
        rows = state["rows"]
        worlds = [index for row in rows for index in range(row, len(self._spent), self.rows)]
        for name, values in state["worlds"].items():
            column = getattr(self.worlds, name)
            if column[worlds].shape != values.shape:
                raise ValueError(f"the state is of another environment: {name} has shape {values.shape}")
            column[worlds] = values
        self._spent[worlds] = state["spent"]
        for name, values in state["row_arrays"].items():
            getattr(self, name)[rows] = values
        for row, jobs, drawn in zip(rows, state["jobs"], state["drawn"], strict=True):
            self.jobs[row], self.drawn[row] = jobs, dict(drawn)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the threads and views, which are made anew where it is unpickled."""
        return {n: value for n, value in self.__dict__.items() if n not in ("_pool", "_clock", "_timers", "_jobs_of")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start the threads again."""
        self.__dict__.update(state)
        self._look()
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None
