"""How long is a training iteration at each placement tier? A cost model of collectives, in NumPy, evaluated before the run.

Iteration time depends on a job's model and demand, on the tier of its placement (not on the exact machines) and on the state of the
network. Compute time comes from models.py; communication is one hierarchical ring all-reduce of the gradients.
"""

from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddl_gym.cluster import ClusterSpec, Tier
from ddl_gym.models import CATALOGUE

Step = tuple[float, float, float]  # (from_s, rack congestion, network congestion)


@dataclass(frozen=True, kw_only=True)
class Network:
    """State of the network over time. Congestion factors (>= 1) divide the bandwidth of their tier.

    `schedule` rows (from_s, rack_congestion, network_congestion) replace the constant factors from that time on.
    `overlap` is the share of the backward pass that can hide communication; the backward pass is `backward_share` of compute
    (2/3: backward costs twice the forward pass).
    """

    overlap: float = 0.5
    backward_share: float = 2 / 3
    rack_congestion: float = 1.0
    network_congestion: float = 1.0
    schedule: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        """Refuse factors below 1 and times that do not ascend."""
        for name in ("overlap", "backward_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"network: {name} is {getattr(self, name)}, it must be in [0, 1]")
        last_s = 0.0
        for row, (from_s, rack, network) in enumerate(((0.0, self.rack_congestion, self.network_congestion), *self.schedule)):
            for name, factor in (("rack", rack), ("network", network)):
                if not (isfinite(factor) and factor >= 1):
                    raise ValueError(f"network: {name} congestion is {factor}, it must be at least 1 and finite")
            if row > 0 and (isnan(from_s) or from_s == inf or from_s <= last_s):
                raise ValueError(f"network: schedule row {row} starts at {from_s} s, it must be later than {last_s} s")
            last_s = max(last_s, from_s)


NETWORKS: dict[str, Network] = {
    "uncongested": Network(),
    "busy": Network(network_congestion=4.0),
    "congested": Network(rack_congestion=2.0, network_congestion=20.0),
    "jammed": Network(rack_congestion=4.0, network_congestion=80.0),
}


def daily_congestion(
    days: int, start_hour: float, end_hour: float, factor: float, *, rack_congestion: float = 1.0, network_congestion: float = 1.0
) -> tuple[Step, ...]:
    """A schedule for so many days: between the two hours of each day network congestion is `factor` times as high."""
    rows: list[Step] = []
    for day in range(days):
        for hour, times in ((start_hour, factor), (end_hour, 1.0)):
            if day * 86_400 + hour * 3_600 > 0:
                rows.append((day * 86_400 + hour * 3_600, rack_congestion, network_congestion * times))
    return tuple(rows)


def all_reduce_s(
    size_bytes: NDArray[np.float64], shape: NDArray[np.int64], bandwidth: NDArray[np.float64], alpha_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Time of a hierarchical ring all-reduce: reduce-scatter up the dimensions, all-gather down.

    T = sum over d of 2 (n_d - 1) (alpha_d + S / (n_1 ... n_d B_d)), the alpha-beta model of ring collectives (Thakur et al.,
    2005) applied a dimension at a time, as in astra-sim's hierarchical collectives. Shapes: `size_bytes` (...), the others
    (..., D); bandwidth in bytes/s of one GPU in that dimension.
    """
    steps = 2.0 * (shape - 1)
    share = np.asarray(size_bytes)[..., None] / np.cumprod(shape, axis=-1)
    return np.sum(steps * (alpha_s + share / bandwidth), axis=-1)


def nominal_shape(gpus: NDArray[np.int64], tier: int, cluster: ClusterSpec) -> NDArray[np.int64]:
    """(P, 3) GPUs a machine, machines a rack, racks: the fewest racks, then the fewest machines, that make this tier."""
    gpus = np.asarray(gpus)
    racks = np.ones_like(gpus) if tier < Tier.NETWORK else np.maximum(2, -(-gpus // cluster.gpus_per_rack))
    per_rack = -(-gpus // racks)
    machines = np.ones_like(gpus) if tier == Tier.MACHINE else -(-per_rack // cluster.gpus_per_machine)
    if tier == Tier.RACK:
        machines = np.maximum(2, machines)
    return np.stack([-(-per_rack // machines), machines, racks], axis=-1)


def iteration_s(
    gpus: NDArray[np.int64],
    model: NDArray[np.int64],
    cluster: ClusterSpec,
    network: Network,
    rack_congestion: float = 1.0,
    network_congestion: float = 1.0,
) -> NDArray[np.float64]:
    """(P, 3) seconds of an iteration at each tier: compute plus the communication that the backward pass cannot hide.

    GPUs of a machine share its interfaces. A wider placement is never faster (running maximum over tiers); +inf where the demand
    does not fit the tier.
    """
    compute_s = CATALOGUE.compute_s(cluster.gpu)[model]
    hidden_s = network.overlap * network.backward_share * compute_s
    alpha_s = np.array([cluster.machine_alpha_s, cluster.rack_alpha_s, cluster.network_alpha_s])
    assert cluster.machine_gb_s is not None and cluster.nic_gb_s is not None
    seconds = np.empty((len(gpus), 3))
    for tier in Tier:
        shape = nominal_shape(gpus, tier, cluster)
        nic = cluster.nic_gb_s * 1e9 / shape[:, 0]
        bandwidth = np.stack(
            [
                np.full(len(gpus), cluster.machine_gb_s * 1e9),
                nic / rack_congestion,
                nic / cluster.oversubscription / network_congestion,
            ],
            axis=-1,
        )
        communication_s = all_reduce_s(CATALOGUE.gradient_bytes[model], shape, bandwidth, alpha_s)
        seconds[:, tier] = compute_s + np.where(gpus == 1, 0.0, np.maximum(0.0, communication_s - hidden_s))
    seconds = np.maximum.accumulate(seconds, axis=1)
    seconds[gpus > cluster.gpus_per_machine, Tier.MACHINE] = inf
    seconds[gpus > cluster.gpus_per_rack, Tier.RACK] = inf
    return seconds


class IterationTables(NamedTuple):
    """Iteration times of a trace; P profiles (distinct pairs of model and demand), K states of the network, N steps."""

    profile: NDArray[np.int64]  # (J,) row of each job
    seconds: NDArray[np.float64]  # (K, P, 3) under each state at each tier
    compute_s: NDArray[np.float64]  # (P,) compute part
    ideal_s: NDArray[np.float64]  # (P,) at the best tier without congestion
    best_tier: NDArray[np.int64]  # (P,)
    sensitivity: NDArray[np.float64]  # (P,) NETWORK / ideal - 1 without congestion
    step_s: NDArray[np.float64]  # (N,) times at which the state changes, the first 0
    step_state: NDArray[np.int64]  # (N,) the state from then on


def iteration_tables(
    gpus: NDArray[np.int64], model: NDArray[np.int64], cluster: ClusterSpec, network: Network
) -> IterationTables:
    """Tables for jobs of these demands and models; ValueError if one asks for more GPUs than the cluster has."""
    if gpus.max(initial=0) > cluster.gpus:
        row = int(np.argmax(gpus > cluster.gpus))
        raise ValueError(f"job at row {row} asks for {gpus[row]} GPUs, the cluster has {cluster.gpus}")
    models = len(CATALOGUE.name)
    code, profile = np.unique(gpus * models + model, return_inverse=True)
    pair_gpus, pair_model = code // models, code % models
    rows = ((0.0, network.rack_congestion, network.network_congestion), *network.schedule)
    states = list(dict.fromkeys((rack, across) for _, rack, across in rows))
    free = iteration_s(pair_gpus, pair_model, cluster, network)
    best_tier = cluster.best_tier(pair_gpus)
    ideal_s = free[np.arange(len(code)), best_tier]
    return IterationTables(
        profile=profile.astype(np.int64),
        seconds=np.stack([iteration_s(pair_gpus, pair_model, cluster, network, *state) for state in states]),
        compute_s=CATALOGUE.compute_s(cluster.gpu)[pair_model],
        ideal_s=ideal_s,
        best_tier=best_tier,
        sensitivity=free[:, Tier.NETWORK] / ideal_s - 1.0,
        step_s=np.array([max(0.0, from_s) for from_s, _, _ in rows]),
        step_state=np.array([states.index((rack, across)) for _, rack, across in rows], np.int64),
    )
