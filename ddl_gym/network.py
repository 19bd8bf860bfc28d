"""How long is a training iteration at each placement tier? A cost model of collectives, evaluated before the run.

Iteration time depends on a job's model and demand, on the tier of its placement (not on the exact machines) and on
the state of the network. Compute time comes from models.py; communication is one hierarchical ring all-reduce of the
gradients.
"""

from dataclasses import dataclass
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ddl_gym.cluster import ClusterSpec, Tier
from ddl_gym.models import CATALOGUE

Step = tuple[float, float, float]  # (from_s, rack congestion, network congestion)


@dataclass(frozen=True, kw_only=True)
class Network:
    """State of the network over time. Congestion factors (>= 1) divide the bandwidth of their tier.

    `schedule` rows (from_s, rack_congestion, network_congestion), ascending in time, replace the constant factors
    from that time on. `overlap` is the share of the backward pass that can hide communication; the backward pass is
    `backward_share` of compute (2/3: it costs twice the forward pass). Both are assumptions of ours, not measured.
    ValueError names the field or the row of the schedule (counted from 1) that is wrong.
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
        _check_congestion("network", self.rack_congestion, self.network_congestion)
        last_s = -inf
        for row, step in enumerate(self.schedule, start=1):
            where = f"network: schedule row {row}"
            if len(step) != 3:
                raise ValueError(f"{where} has {len(step)} numbers, it must be (from_s, rack, network congestion)")
            from_s, *factors = step
            if not (isfinite(from_s) and from_s >= 0):
                raise ValueError(f"{where} starts at {from_s} s, it must be 0 or later and finite")
            if from_s <= last_s:
                raise ValueError(f"{where} starts at {from_s} s, it must be later than the row before at {last_s} s")
            _check_congestion(where, *factors)
            last_s = from_s

    @property
    def steps(self) -> tuple[Step, ...]:
        """The state from each time on, the first from 0: the constant factors, then the schedule."""
        if self.schedule and self.schedule[0][0] == 0:
            return self.schedule
        return ((0.0, self.rack_congestion, self.network_congestion), *self.schedule)


def _check_congestion(where: str, rack: float, network: float) -> None:
    for name, factor in (("rack", rack), ("network", network)):
        if not (isfinite(factor) and factor >= 1):
            raise ValueError(f"{where}: {name} congestion is {factor}, it must be at least 1 and finite")


# Factors of our own choice, from a network shared with few others to one in which crossing racks is hopeless.
NETWORKS: dict[str, Network] = {
    "uncongested": Network(),
    "busy": Network(network_congestion=4.0),
    "congested": Network(rack_congestion=2.0, network_congestion=20.0),
    "jammed": Network(rack_congestion=4.0, network_congestion=80.0),
}


def daily_congestion(
    days: int,
    start_hour: float,
    end_hour: float,
    factor: float,
    *,
    rack_congestion: float = 1.0,
    network_congestion: float = 1.0,
) -> tuple[Step, ...]:
    """A schedule for so many days: between the two hours of each day network congestion is `factor` times as high.

    Time 0 is midnight. Outside these hours the two given factors hold; give the `Network` the same ones. ValueError
    if the hours do not ascend within 0 to 24.
    """
    if not 0 <= start_hour < end_hour <= 24:
        raise ValueError(f"daily congestion from hour {start_hour} to {end_hour}: hours must ascend within 0 to 24")
    rows: dict[float, Step] = {}  # by time: a day that starts congested replaces the end of the day before
    for day in range(days):
        for hour, times in ((start_hour, factor), (end_hour, 1.0)):
            from_s = day * 86_400.0 + hour * 3_600.0
            rows[from_s] = (from_s, rack_congestion, network_congestion * times)
    return tuple(rows.values())


def all_reduce_s(
    size_bytes: NDArray[np.float64],
    shape: NDArray[np.int64],
    bandwidth_bytes_s: NDArray[np.float64],
    alpha_s: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Time of a hierarchical ring all-reduce: reduce-scatter up the dimensions, all-gather down.

    T = sum over d of 2 (n_d - 1) (alpha_d + S / (n_1 ... n_d B_d)): the alpha-beta model of ring collectives (Thakur et
    al., 2005), one dimension after another as in astra-sim's hierarchical collectives. `size_bytes` (...); the others
    (..., D), innermost dimension first: ranks, bytes/s of one GPU (may be infinite) and seconds a ring step.
    """
    steps = 2.0 * (np.asarray(shape) - 1)
    share = np.asarray(size_bytes)[..., None] / np.cumprod(shape, axis=-1)
    seconds: NDArray[np.float64] = np.sum(steps * (alpha_s + share / bandwidth_bytes_s), axis=-1)
    return seconds


def nominal_shape(gpus: NDArray[np.int64], tier: int, cluster: ClusterSpec) -> NDArray[np.int64]:
    """(P, 3) GPUs a machine, machines a rack, racks: the fewest racks, then the fewest machines, that make this tier.

    It stands for every placement at that tier. Shares are equal and rounded up: the product may exceed the demand.
    """
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

    Exposed communication = max(0, all-reduce - overlap * backward); one GPU has none. GPUs of a machine share its
    interfaces. A wider placement is never faster (running maximum over tiers: on more machines each GPU has a larger
    part of an interface, which the formula alone may count as a gain). +inf where the demand does not fit the tier.
    The factors of `network` itself play no part, only its overlap; `gpus`, `model` (P,).
    """
    compute_s = CATALOGUE.compute_s(cluster.gpu)[model]
    hidden_s = network.overlap * network.backward_share * compute_s
    alpha_s = np.array([cluster.machine_alpha_s, cluster.rack_alpha_s, cluster.network_alpha_s])
    assert cluster.machine_gb_s is not None
    assert cluster.nic_gb_s is not None
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


class Pairs(NamedTuple):
    """Distinct pairs of demand and model, and what does not depend on congestion; P pairs."""

    gpus: NDArray[np.int64]  # (P,)
    model: NDArray[np.int64]  # (P,)
    compute_s: NDArray[np.float64]  # (P,)
    ideal_s: NDArray[np.float64]  # (P,)
    best_tier: NDArray[np.int64]  # (P,)
    sensitivity: NDArray[np.float64]  # (P,)
    hidden_share: float  # of compute that can hide communication: overlap * backward_share


def describe_pairs(
    gpus: NDArray[np.int64], model: NDArray[np.int64], cluster: ClusterSpec, network: Network | None = None
) -> Pairs:
    """The uncongested iteration times of these pairs, (P,) each, under the overlap of `network` (default: `Network()`).

    ValueError if one asks for more GPUs than the cluster has.
    """
    _check_demand("pair", gpus, cluster)
    network = network or Network()
    seconds = iteration_s(gpus, model, cluster, network)
    best_tier = cluster.best_tier(gpus)
    ideal_s = seconds[np.arange(len(gpus)), best_tier]
    sensitivity = seconds[:, Tier.NETWORK] / ideal_s - 1.0
    compute_s = CATALOGUE.compute_s(cluster.gpu)[model]
    return Pairs(gpus, model, compute_s, ideal_s, best_tier, sensitivity, network.overlap * network.backward_share)


def _check_demand(what: str, gpus: NDArray[np.int64], cluster: ClusterSpec) -> None:
    if gpus.max(initial=0) > cluster.gpus:
        row = int(np.argmax(gpus > cluster.gpus))
        raise ValueError(f"{what} at row {row} asks for {gpus[row]} GPUs, the cluster has {cluster.gpus}")


def tables_of_pairs(
    profile: NDArray[np.int64], pairs: Pairs, cluster: ClusterSpec, network: Network
) -> IterationTables:
    """Tables for jobs whose pair is row `profile` (J,) of `pairs`; equal states of the network share a table.

    ValueError if the pairs were described under another overlap.
    """
    hidden_share = network.overlap * network.backward_share
    if hidden_share != pairs.hidden_share:
        raise ValueError(f"network hides {hidden_share} of compute, the pairs were described with {pairs.hidden_share}")
    state_of_row = [(rack, across) for _, rack, across in network.steps]
    index = {state: row for row, state in enumerate(dict.fromkeys(state_of_row))}
    return IterationTables(
        profile=profile,
        seconds=np.stack([iteration_s(pairs.gpus, pairs.model, cluster, network, *state) for state in index]),
        compute_s=pairs.compute_s,
        ideal_s=pairs.ideal_s,
        best_tier=pairs.best_tier,
        sensitivity=pairs.sensitivity,
        step_s=np.array([from_s for from_s, _, _ in network.steps], np.float64),
        step_state=np.array([index[state] for state in state_of_row], np.int64),
    )


def iteration_tables(
    gpus: NDArray[np.int64], model: NDArray[np.int64], cluster: ClusterSpec, network: Network
) -> IterationTables:
    """Tables for jobs of these demands and models, (J,) each.

    ValueError names the first row that asks for more GPUs than the cluster has.
    """
    _check_demand("job", gpus, cluster)
    models = len(CATALOGUE.name)
    code, profile = np.unique(gpus * models + model, return_inverse=True)
    pairs = describe_pairs(code // models, code % models, cluster, network)
    return tables_of_pairs(profile.astype(np.int64), pairs, cluster, network)
