"""What can be chosen about an environment? One frozen record of JSON values, the keyword arguments of every env id."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf, isfinite
from typing import Any

from ddl_gym.cluster import ClusterSpec, parse_cluster
from ddl_gym.policies import Order, Policy

Range = float | tuple[float, float]  # a number, or [low, high] to draw from at each reset

REWARDS = ("jct", "makespan", "mixed")
BASELINES = (None, "auto_tuner")
SPLITS = ("all", "train", "validation", "test")
ACTION_MODES = ("residual", "absolute")
LAYOUTS = ("factored", "table")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Keyword arguments of the environments; every value is a JSON value (a list serves as a tuple).

    Scenario, drawn anew at each reset:
        trace: name of a workload preset (`ddl_gym.workload.PRESETS`), of a bundled trace, a path to a CSV, or a mapping of
            `Workload` fields.
        jobs: jobs of an episode. Of a file: so many consecutive ones from a random place (all, if it has fewer).
        cluster: as `parse_cluster` reads it, "512" or "8x8x8@a100".
        load: offered load to which submissions are stretched; None keeps a file's own. Batches ignore it.
        split: part of the trace: a file is cut 60/20/20 by time; generated workloads use disjoint seeds.
        oversubscription: of the racks' uplinks.
        rack_congestion, network_congestion: factors that divide the bandwidth inside and across racks; ranges are drawn
            log-uniformly.
        congested_hours: None, or [start hour, end hour, factor]: every day between these hours (from a random time of day
            on) the network congestion is multiplied by the factor.
        restore_s: cost of a restart.

    Scheduler around the agent: order (a name of `Order`, lower case), preemption, preemption_margin, upgrade, round_s, quantum_s,
    demand_edges, sensitivity_edges, service_edges, tuner_window, tuner_std_factor; see `Policy`.

    Decisions and reward:
        decision_s: seconds between decisions, a multiple of round_s.
        max_decisions: the episode is truncated after so many.
        reward: "jct", "makespan" or "mixed"; see `ddl_gym.reward`. jct_weight: share of "jct" in "mixed".
        baseline: None, or "auto_tuner" to subtract the reward of the auto-tuner on the same episode.
        action_mode, residual_range, residual_floor_s, absolute_scale_s, layout: see `ddl_gym.actions`.
    """

    trace: str | Mapping[str, Any] = "distributed_short"
    jobs: int = 512
    cluster: str = "512"
    load: Range | None = (0.9, 1.4)
    split: str = "all"
    oversubscription: float = 1.0
    rack_congestion: Range = 1.0
    network_congestion: Range = (1.0, 80.0)
    congested_hours: tuple[float, float, float] | None = None
    restore_s: float = 60.0
    order: str = "las"
    preemption: bool = True
    preemption_margin: float = 0.25
    upgrade: bool = True
    round_s: float = 300.0
    quantum_s: float = 300.0
    demand_edges: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    sensitivity_edges: tuple[float, ...] = ()
    service_edges: tuple[float, ...] = ()
    tuner_window: int = 64
    tuner_std_factor: float = 1.0
    decision_s: float = 1_800.0
    max_decisions: int = 4_000
    reward: str = "jct"
    jct_weight: float = 0.5
    baseline: str | None = None
    action_mode: str = "residual"
    residual_range: float = 8.0
    residual_floor_s: float = 60.0
    absolute_scale_s: float = 1_800.0
    layout: str = "factored"

    @classmethod
    def of(cls, **keywords: Any) -> "Settings":
        """Make settings from JSON values; ValueError names an unknown keyword."""
        known = {field.name for field in fields(cls)}
        for name in keywords:
            if name not in known:
                raise ValueError(f"unknown environment argument {name!r}; known: {', '.join(sorted(known))}")
        values: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in keywords.items()}
        return cls(**values)

    def __post_init__(self) -> None:
        """Refuse what no environment can be."""
        for name, allowed in (
            ("reward", REWARDS),
            ("baseline", BASELINES),
            ("split", SPLITS),
            ("action_mode", ACTION_MODES),
            ("layout", LAYOUTS),
            ("order", tuple(order.name.lower() for order in Order)),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}, it must be one of {', '.join(map(str, allowed))}")
        for name in ("jobs", "max_decisions"):
            if (
                isinstance(getattr(self, name), bool)
                or not isinstance(getattr(self, name), int)
                or getattr(self, name) < 1
            ):
                raise ValueError(f"{name} is {getattr(self, name)!r}, it must be a whole number of at least 1")
        for name, least in (("load", 0.0), ("rack_congestion", 1.0), ("network_congestion", 1.0)):
            low, high = bounds(getattr(self, name)) if getattr(self, name) is not None else (1.0, 1.0)
            if not least <= low <= high < inf or low == 0:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, it must be {least} or more (above 0), low before high"
                )
        for name in ("decision_s", "absolute_scale_s"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} is {getattr(self, name)}, it must be positive and finite")
        if not 0.001 <= self.round_s < inf:
            raise ValueError(f"round_s is {self.round_s}, it must be finite and at least 0.001")
        if not 0 <= self.restore_s <= 31_536_000:
            raise ValueError(f"restore_s is {self.restore_s}, it must be from 0 to 31,536,000 (a year)")
        if (self.decision_s / self.round_s) % 1 != 0:
            raise ValueError(f"decision_s is {self.decision_s}, it must be a multiple of round_s = {self.round_s}")
        limits = 1 <= self.residual_range < inf and 0 <= self.residual_floor_s < inf and 0 <= self.jct_weight <= 1
        if not limits:
            raise ValueError(
                "residual_range must be at least 1, residual_floor_s 0 or more, both finite, jct_weight in [0, 1]"
            )
        if self.congested_hours is not None:
            if len(self.congested_hours) != 3:
                raise ValueError(
                    f"congested_hours is {self.congested_hours}, it must be [start hour, end hour, factor]"
                )
            start, end, factor = self.congested_hours
            if not (0 <= start < end <= 24 and 1 <= factor < inf):
                raise ValueError(
                    f"congested_hours is {self.congested_hours}: hours must ascend within 0 to 24, the factor be at least 1"
                )
        self.cluster_spec()
        self.policy()

    def cluster_spec(self) -> ClusterSpec:
        """The cluster of every episode."""
        return replace(parse_cluster(self.cluster), oversubscription=self.oversubscription)

    def policy(self, auto_tuner: bool = True) -> Policy:
        """The scheduler in whose place the agent sets timers; the tuner's timers start as the paper's manual ones do."""
        return Policy(
            name="environment",
            order=Order[self.order.upper()],
            machine_timer_s=1_800.0,
            rack_timer_s=3_600.0,
            auto_tuner=auto_tuner,
            tuner_window=self.tuner_window,
            tuner_std_factor=self.tuner_std_factor,
            demand_edges=self.demand_edges,
            sensitivity_edges=self.sensitivity_edges,
            service_edges=self.service_edges,
            round_s=self.round_s,
            preemption=self.preemption,
            preemption_margin=self.preemption_margin,
            upgrade=self.upgrade,
            quantum_s=self.quantum_s,
        )


def bounds(value: Range) -> tuple[float, float]:
    """Low and high of a number or a range."""
    if isinstance(value, int | float):
        return float(value), float(value)
    low, high = value
    return float(low), float(high)
