"""Which scheduler is simulated? A policy = queue order x placement rule x delay timers x preemption rule."""

from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise
from math import inf, isfinite, isnan


class Order(IntEnum):
    """Queue order: the smaller its key, the sooner a job is served (rule "Priority" in simulator.py)."""

    FIFO = 0
    SRTF = 1
    LAS = 2
    DISCRETISED_LAS = 3
    NETWORK_SENSITIVITY = 4
    USEFUL_SERVICE = 5


class Placement(IntEnum):
    """Placement rule (rule "Offers" in simulator.py)."""

    CONSOLIDATE = 0
    SKEW = 1
    AFFINITY = 2


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A scheduler made of parts; every rule it switches on is stated in `ddl_gym.simulator`.

    The constants of the paper's parts are a reconstruction (its text does not give them), so each is a field here.
    """

    name: str = "custom"
    order: Order = Order.LAS
    placement: Placement = Placement.CONSOLIDATE
    # Delay timers, by tier waited for; `inf` holds out for ever, 0 takes what there is.
    machine_timer_s: float = 0.0
    rack_timer_s: float = 0.0
    auto_tuner: bool = False
    tuner_window: int = 64  # entries kept a (class, tier)
    tuner_max_age_s: float = 86_400.0
    tuner_std_factor: float = 1.0  # k in mean + k std
    # Classes: upper edges of the bins; () is a single bin.
    demand_edges: tuple[int, ...] = (
        1,
        2,
        4,
        8,
        16,
        32,
    )  # GPUs; a job falls in the first bin whose edge is >= its demand
    sensitivity_edges: tuple[float, ...] = ()  # iteration time at NETWORK / at the best tier, minus 1
    service_edges: tuple[float, ...] = ()  # attained service, GPU-seconds
    # Rounds, preemption and placement upgrade.
    round_s: float = 300.0
    preemption: bool = False
    preemption_margin: float = 0.0  # 0: any better key outranks; 1: nothing outranks
    upgrade: bool = False
    quantum_s: float = 300.0
    # Tiresias (Gu et al., NSDI'19): upper edges of all queues but the last, GPU-seconds; promotion after waiting
    # promote_factor times the executed time (inf: never); a job is consolidated when its skew is above skew_limit.
    las_edges: tuple[float, ...] = (3_600.0,)
    promote_factor: float = inf
    skew_limit: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what no scheduler can mean."""
        for field in ("machine_timer_s", "rack_timer_s", "tuner_max_age_s", "quantum_s", "promote_factor"):
            value = getattr(self, field)
            if isnan(value) or value < 0:
                raise ValueError(f"policy {self.name}: {field} is {value}, it must be 0 or more")
        if self.rack_timer_s < self.machine_timer_s:
            raise ValueError(
                f"policy {self.name}: rack_timer_s is {self.rack_timer_s}, less than machine_timer_s {self.machine_timer_s};"
                " both count from the same clock"
            )
        if not (isfinite(self.round_s) and self.round_s >= 0.001):
            raise ValueError(f"policy {self.name}: round_s is {self.round_s}, it must be finite and at least 0.001")
        if not 0 <= self.preemption_margin <= 1:
            raise ValueError(f"policy {self.name}: preemption_margin is {self.preemption_margin}, it must be in [0, 1]")
        if not isfinite(self.tuner_std_factor) or not isfinite(self.skew_limit):
            raise ValueError(f"policy {self.name}: tuner_std_factor and skew_limit must be finite")
        if self.tuner_window < 1:
            raise ValueError(f"policy {self.name}: tuner_window is {self.tuner_window}, it must be at least 1")
        for field in ("demand_edges", "sensitivity_edges", "service_edges", "las_edges"):
            edges = getattr(self, field)
            if any(isnan(edge) for edge in edges) or any(a >= b for a, b in pairwise(edges)):
                raise ValueError(f"policy {self.name}: {field} is {edges}, it must ascend")

    @property
    def classes(self) -> int:
        """Number of timer classes: demand bins x sensitivity bins x service bins."""
        return (len(self.demand_edges) + 1) * (len(self.sensitivity_edges) + 1) * (len(self.service_edges) + 1)


def _table() -> dict[str, Policy]:
    """The named policies, one row each; rows that share parts start from the same line."""
    delay = Policy(order=Order.FIFO, machine_timer_s=1_800.0, rack_timer_s=3_600.0)
    rows = {
        # Submission order, passing over jobs that do not fit (backfilling without reservations).
        "fifo": Policy(order=Order.FIFO),
        # Shortest remaining time first: preemptive and clairvoyant.
        "srtf": Policy(order=Order.SRTF, preemption=True),
        # Two-dimensional least attained service (Gu et al., NSDI'19), continuous.
        "las": Policy(order=Order.LAS, preemption=True),
        # The paper's variants without preemption (Dally, arXiv 2401.16492; timer values are ours).
        "no_wait": replace(delay, machine_timer_s=0.0, rack_timer_s=0.0),
        "fully_consolidated": replace(delay, machine_timer_s=inf, rack_timer_s=inf),
        "static_timers": delay,
        "auto_tuner": replace(delay, auto_tuner=True),
        # All three components of the paper: delay scheduling, network-sensitive preemption, auto-tuner.
        "dally": replace(
            delay, order=Order.USEFUL_SERVICE, auto_tuner=True, preemption=True, preemption_margin=0.5, upgrade=True
        ),
        # Discretised 2D-LAS with two queues (3,600 GPU-s: the example of Tiresias' repository), promotion, skew-based
        # consolidation. promote_factor and skew_limit are ours: the paper leaves both to the operator.
        "tiresias": Policy(
            order=Order.DISCRETISED_LAS,
            placement=Placement.SKEW,
            preemption=True,
            las_edges=(3_600.0,),
            promote_factor=8.0,
        ),
        # Affinity placement and migration into freed machines (Xiao et al., OSDI'18), without time-slicing and packing.
        "gandiva": Policy(order=Order.FIFO, placement=Placement.AFFINITY, upgrade=True),
    }
    return {name: replace(policy, name=name) for name, policy in rows.items()}


POLICIES: dict[str, Policy] = _table()


def named_policy(name: str) -> Policy:
    """The policy of that name; ValueError lists the names there are."""
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r}; known: {', '.join(POLICIES)}")
    return POLICIES[name]
