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
        self._paid = np.zeros((worlds, 2))  # job-seconds and seconds paid for so far
        self._status = np.zeros(worlds, np.int64)

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
        for index in range(row, len(self._paid), self.rows):
            world = world_row(self.worlds, index)
            fill(world, self.cluster, episode.jobs, self.policy, episode.tables, self.settings.restore_s)
            self._paid[index] = 0.0
        agent = world_row(self.worlds, row)
        agent.rules[0].auto_tuner = self._tuner_mode
        agent.rules[0].asks = self.kind == "offers"
        self.decisions[row], self.returns[row], self.active[row] = 0, 0.0, True
        self._before[row] = 0.0
        if self.kind == "offers":
            self._status[row] = kernel.advance(agent, inf, 1 << 62)

    # Actions, for rows in an episode; the others keep what they have.

    def set_timers(self, components: NDArray[np.float64]) -> None:
        """Set the delay timers of all rows from components in [-1, 1] that broadcast to (N, C, 2)."""
        timers = self.worlds.timers[: self.rows]
        if self._tuner_mode == 1:
            factor, offset_s = actions.residual_terms(components, self.settings)
            timers["factor"], timers["offset_s"] = factor, offset_s
            timers_s = np.maximum(timers["tuned_s"] * timers["factor"] + timers["offset_s"], 0.0)
        else:
            timers_s = np.empty(timers.shape)
            timers_s[...] = actions.absolute_timer_s(components, self.settings.absolute_scale_s)
        timers_s[..., 1] = np.maximum(timers_s[..., 0], timers_s[..., 1])
        timers["timer_s"] = timers_s
        self.worlds.clock["stale"][: self.rows] = 1

    def set_margins(self, components: NDArray[np.float64]) -> None:
        """Set the preemption margins from components (N,) in [-1, 1]."""
        self.worlds.clock["preemption_margin"][: self.rows, 0] = actions.margin(components, self.settings)

    def answer(self, accept: NDArray[np.bool_]) -> None:
        """Answer the offers that the rows ask about, (N,)."""
        for row in map(int, np.flatnonzero(self.active & (self.worlds.clock["asked_job"][: self.rows, 0] != NONE))):
            kernel.answer(world_row(self.worlds, row), bool(accept[row]))

    # Time.

    def step(self) -> Outcome:
        """Go to the next decision of each row in an episode; pays rewards and says which episodes ended."""
        clock = self.worlds.clock
        now_s = clock["now"][:, 0]
        before_s = now_s[: self.rows].copy()
        until_s = now_s.copy()
        asks = self.kind == "offers"
        until_s[: self.rows][self.active] = inf if asks else before_s[self.active] + self.settings.decision_s
        self._advance(0, self.rows, until_s)
        self.decisions += self.active
        terminated = self.active & (clock["finished"][: self.rows, 0] == self.worlds.rules["jobs"][: self.rows, 0])
        truncated = self.active & ~terminated & (self.decisions >= self.settings.max_decisions)
        rewards = self._pay(slice(0, self.rows))
        if self.settings.baseline:
            until_s[self.rows :] = np.where(terminated, inf, now_s[: self.rows])
            until_s[self.rows :][~self.active] = now_s[self.rows :][~self.active]
            self._advance(self.rows, 2 * self.rows, np.maximum(until_s, now_s))
            rewards = rewards - self._pay(slice(self.rows, 2 * self.rows))
        rewards = np.where(self.active, rewards, 0.0)
        self.returns += rewards
        self.active &= ~(terminated | truncated)
        return Outcome(rewards, terminated, truncated)

    def _pay(self, rows: slice) -> NDArray[np.float64]:
        clock = self.worlds.clock[rows, 0]
        reached = np.stack([clock["job_seconds"], clock["now"]], axis=1)
        spent = reached - self._paid[rows]
        self._paid[rows] = reached
        settings = self.settings
        return reward.total(settings.reward, settings.jct_weight, spent[:, 0], spent[:, 1], self._units)

    def _advance(self, first: int, end: int, until_s: NDArray[np.float64]) -> None:
        self._shards(lambda a, b: kernel.advance_rows(self.worlds, a, b, until_s, self._status), first, end)

    def observe(self) -> NDArray[np.float32]:
        """(N, F) what the agents see now; the array is overwritten by the next call."""
        self._shards(lambda a, b: observe_rows(self.worlds, a, b, self._before, self.observations), 0, self.rows)
        self._before[:, 0] = self.worlds.clock["next_job"][: self.rows, 0]
        self._before[:, 1] = self.worlds.clock["finished"][: self.rows, 0]
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
        worlds = [index for row in rows for index in range(row, len(self._paid), self.rows)]
        names = ("decisions", "returns", "active", "observations", "_units", "_before")
        return {
            "rows": list(rows),
            "worlds": {name: column[worlds] for name, column in self.worlds._asdict().items()},
            "paid": self._paid[worlds],
            "row_arrays": {name: getattr(self, name)[list(rows)] for name in names},
            "jobs": [self.jobs[row] for row in rows],
            "drawn": [dict(self.drawn[row]) for row in rows],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state taken from a fleet of the same settings."""
        rows = state["rows"]
        worlds = [index for row in rows for index in range(row, len(self._paid), self.rows)]
        for name, values in state["worlds"].items():
            column = getattr(self.worlds, name)
            if column[worlds].shape != values.shape:
                raise ValueError(f"the state is of another environment: {name} has shape {values.shape}")
            column[worlds] = values
        self._paid[worlds] = state["paid"]
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
        """Everything but the threads, which start anew where it is unpickled."""
        return {name: value for name, value in self.__dict__.items() if name != "_pool"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start the threads again."""
        self.__dict__.update(state)
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None
