"""Are iteration times those of the formulas, of an independent simulator of collectives, and of common sense?"""

import csv
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ddl_gym.cluster import ClusterSpec, Tier, parse_cluster
from ddl_gym.models import CATALOGUE, model_index
from ddl_gym.network import (
    NETWORKS,
    Network,
    all_reduce_s,
    daily_congestion,
    describe_pairs,
    iteration_s,
    iteration_tables,
    nominal_shape,
    tables_of_pairs,
)

DATA = Path(__file__).parents[2] / "shared" / "data"
DAY_S, HOUR_S = 86_400.0, 3_600.0
MODELS = len(CATALOGUE.name)
RESNET50 = model_index("resnet50")
V100 = parse_cluster("64")

speeds = st.sampled_from((0.1, 1.0, 12.2, 130.0, inf))
alphas = st.sampled_from((0.0, 3.4e-6, 1e-3))
factors = st.sampled_from((1.0, 1.5, 4.0, 80.0))
clusters = st.builds(
    ClusterSpec,
    racks=st.integers(1, 4),
    machines_per_rack=st.integers(1, 4),
    gpus_per_machine=st.integers(1, 8),
    gpu=st.sampled_from(("v100", "a100", "h100")),
    machine_gb_s=speeds,
    nic_gb_s=speeds,
    oversubscription=factors,
    machine_alpha_s=alphas,
    rack_alpha_s=alphas,
    network_alpha_s=alphas,
)
shares = st.sampled_from((0.0, 0.3, 0.5, 1.0))
networks = st.builds(
    Network, overlap=shares, backward_share=shares, rack_congestion=factors, network_congestion=factors
)


def all_pairs(cluster: ClusterSpec) -> tuple[np.ndarray, np.ndarray]:
    """Every demand of the cluster with every model."""
    demands = np.arange(1, cluster.gpus + 1)
    return np.repeat(demands, MODELS), np.tile(np.arange(MODELS), cluster.gpus)


def jobs_on(cluster: ClusterSpec) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    rows = st.lists(st.tuples(st.integers(1, cluster.gpus), st.integers(0, MODELS - 1)), max_size=20)
    return rows.map(lambda jobs: tuple(np.array([job[column] for job in jobs], np.int64) for column in (0, 1)))


# The all-reduce against astra-sim's analytical backend.


class AstraRun(NamedTuple):
    """One row of a file of astra-sim runs."""

    size_bytes: float
    shape: np.ndarray  # (D,)
    bandwidth_bytes_s: np.ndarray  # (D,)
    alpha_s: np.ndarray  # (D,) of one ring step
    collective: str
    algorithm: str
    chunks: int
    aware: bool  # of congestion: links are store-and-forward queues
    switch: bool
    seconds: float

    def formula_s(self) -> float:
        """Our all-reduce for the same ranks and links."""
        if self.collective == "baseline":  # the whole buffer is reduced in every dimension, one after the other
            one = zip(self.shape[:, None], self.bandwidth_bytes_s[:, None], self.alpha_s[:, None], strict=True)
            return sum(float(all_reduce_s(self.size_bytes, *dimension)) for dimension in one)
        return float(all_reduce_s(self.size_bytes, self.shape, self.bandwidth_bytes_s, self.alpha_s))


def astra_runs(name: str) -> list[AstraRun]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with path.open(newline="") as file:
        return [_astra_run(row) for row in csv.DictReader(file)]


def _astra_run(row: dict[str, str]) -> AstraRun:
    dimensions = row["topology"].split("x")
    hops = np.array([2 if dimension.startswith("Switch") else 1 for dimension in dimensions])
    return AstraRun(
        size_bytes=float(row["size_bytes"]),
        shape=np.array([int(dimension.removeprefix("Switch").removeprefix("Ring")) for dimension in dimensions]),
        bandwidth_bytes_s=np.array(row["bw_GBps"].split(";"), float) * 1e9,
        alpha_s=hops * np.array(row["lat_ns_per_hop"].split(";"), float) * 1e-9,
        collective=row["collective_opt"],
        algorithm=row["impl"],
        chunks=int(row["chunks"]),
        aware=row["backend"] == "Aware",
        switch=dimensions[0].startswith("Switch"),
        seconds=float(row["astra_ns"]) * 1e-9,
    )


def test_every_unpipelined_ring_of_astra_sim_takes_the_time_of_the_formula():
    runs = astra_runs("astra_allreduce_reference.csv")
    assert len(runs) == 72
    for run in runs:
        assert run.formula_s() == pytest.approx(run.seconds, rel=0.001), run


def test_comparable_runs_of_astra_sim_with_other_options_take_the_time_of_the_formula():
    """Two kinds of rows have no counterpart.

    Halving-doubling is another algorithm, and with several chunks the congestion-unaware backend lets them share a link
    for nothing, below the bandwidth bound. A congestion-aware switch stores and forwards: bytes are serialised twice.
    """
    runs = astra_runs("astra_allreduce_other.csv")
    comparable = [run for run in runs if run.algorithm == "ring" and run.chunks == 1]
    assert (len(runs), len(comparable)) == (44, 12)
    for run in comparable:
        assert run.aware
        links = 2 if run.switch else 1
        twice = run._replace(bandwidth_bytes_s=run.bandwidth_bytes_s / links)
        assert twice.formula_s() == pytest.approx(run.seconds, rel=0.001), run


def test_the_excluded_chunked_runs_are_below_the_bandwidth_bound():
    chunked = [run for run in astra_runs("astra_allreduce_other.csv") if run.chunks > 1]
    assert len(chunked) == 28
    for run in chunked:
        assert run.seconds < float(all_reduce_s(run.size_bytes, run.shape, run.bandwidth_bytes_s, np.zeros(1)))


def test_one_ring_takes_the_time_that_its_bus_bandwidth_says():
    # nccl-tests: bus bandwidth = size / t * 2 (n - 1) / n.
    seconds = float(all_reduce_s(1e9, np.array([8]), np.array([100e9]), np.zeros(1)))
    assert 1e9 / seconds * 2 * 7 / 8 == pytest.approx(100e9)


def test_a_ring_of_one_takes_no_time_and_its_dimension_may_be_left_out():
    bandwidth, alpha_s = np.array([1e9, 2e9, 3e9]), np.array([1e-6, 2e-6, 3e-6])
    assert all_reduce_s(1e8, np.array([1, 1, 1]), bandwidth, alpha_s) == 0.0
    assert all_reduce_s(1e8, np.array([4, 1, 2]), bandwidth, alpha_s) == all_reduce_s(
        1e8, np.array([4, 2]), bandwidth[[0, 2]], alpha_s[[0, 2]]
    )


def test_many_all_reduces_at_once_take_the_time_of_each():
    size_bytes, shape = np.array([1e6, 5e8]), np.array([[8, 2, 1], [4, 3, 2]])
    bandwidth, alpha_s = np.array([[1e11, 1e9, 1e9], [2e11, 3e9, 5e8]]), np.array([1e-6, 5e-6, 9e-6])
    together = all_reduce_s(size_bytes, shape, bandwidth, alpha_s)
    apart = [float(all_reduce_s(*row, alpha_s)) for row in zip(size_bytes, shape, bandwidth, strict=True)]
    assert together.tolist() == apart


# The shape that stands for a tier.


@pytest.mark.parametrize(
    ("gpus", "tier", "shape"),
    [
        (8, Tier.MACHINE, (8, 1, 1)),
        (2, Tier.RACK, (1, 2, 1)),
        (8, Tier.RACK, (4, 2, 1)),
        (16, Tier.RACK, (8, 2, 1)),
        (17, Tier.RACK, (6, 3, 1)),
        (8, Tier.NETWORK, (4, 1, 2)),
        (32, Tier.NETWORK, (8, 2, 2)),
        (64, Tier.NETWORK, (8, 4, 2)),
    ],
)
def test_a_tier_is_made_of_as_few_racks_and_machines_as_can_be(gpus, tier, shape):
    assert tuple(nominal_shape(np.array([gpus]), tier, V100)[0]) == shape


@given(clusters)
def test_nominal_shapes_hold_the_demand_and_cross_no_wider_boundary_than_their_tier(cluster):
    for tier in Tier:
        gpus = np.arange(1, cluster.gpus + 1)
        shape = nominal_shape(gpus, tier, cluster)
        assert np.all(shape >= 1)
        assert np.all(np.prod(shape, axis=1) >= gpus)
        if tier < Tier.NETWORK:
            assert np.all(shape[:, 2] == 1)
        else:
            assert np.all(shape[:, 2] >= 2)
        if tier == Tier.MACHINE:
            assert np.all(shape[:, 1] == 1)
        elif tier == Tier.RACK:
            assert np.all(shape[:, 1] >= 2)
        fits = gpus <= (cluster.gpus_per_machine, cluster.gpus_per_rack, cluster.gpus)[tier]
        assert np.all(shape[fits, 0] <= cluster.gpus_per_machine)


# Iteration times.


def test_two_full_machines_expose_the_gradients_over_one_interface():
    # Between two machines an all-reduce sends each machine's part once out and once in: size / interface.
    cluster = replace(V100, machine_gb_s=inf, machine_alpha_s=0.0, rack_alpha_s=0.0)
    seconds = iteration_s(np.array([16]), np.array([RESNET50]), cluster, Network(overlap=0.0))
    assert seconds[0, Tier.RACK] == pytest.approx(0.1067 + 102_228_000 / 12.2e9)
    assert seconds[0, Tier.MACHINE] == inf


def test_the_backward_pass_hides_its_share_of_communication():
    slow = replace(V100, nic_gb_s=1.0)  # the all-reduce takes longer than the backward pass
    exposed, half, full = (
        iteration_s(np.array([16]), np.array([RESNET50]), slow, Network(overlap=overlap))[0, Tier.RACK]
        for overlap in (0.0, 0.5, 1.0)
    )
    backward_s = 0.1067 * 2 / 3
    assert exposed - half == pytest.approx(backward_s / 2)
    assert exposed - full == pytest.approx(backward_s)


def test_oversubscription_and_congestion_of_the_network_are_the_same_division():
    gpus, model = all_pairs(V100)
    oversubscribed = iteration_s(gpus, model, replace(V100, oversubscription=4.0), Network())
    congested = iteration_s(gpus, model, V100, Network(), network_congestion=4.0)
    assert np.array_equal(oversubscribed, congested)


@given(clusters, networks)
def test_one_gpu_only_computes(cluster, network):
    seconds = iteration_s(np.ones(MODELS, np.int64), np.arange(MODELS), cluster, network)
    assert np.array_equal(seconds, np.repeat(CATALOGUE.compute_s(cluster.gpu)[:, None], 3, axis=1))


@given(clusters, networks, factors, factors)
def test_links_without_limits_leave_compute_only(cluster, network, rack, across):
    ideal = replace(cluster, machine_gb_s=inf, nic_gb_s=inf, machine_alpha_s=0.0, rack_alpha_s=0.0, network_alpha_s=0.0)
    gpus, model = all_pairs(ideal)
    seconds = iteration_s(gpus, model, ideal, network, rack, across)
    compute_s = np.broadcast_to(CATALOGUE.compute_s(ideal.gpu)[model][:, None], seconds.shape)
    assert np.array_equal(seconds[np.isfinite(seconds)], compute_s[np.isfinite(seconds)])


@given(clusters, networks, factors, factors)
def test_a_wider_tier_is_never_faster_and_one_is_infinite_only_where_the_demand_does_not_fit(
    cluster, network, rack, across
):
    gpus, model = all_pairs(cluster)
    seconds = iteration_s(gpus, model, cluster, network, rack, across)
    fits = np.arange(3) >= cluster.best_tier(gpus)[:, None]
    assert np.array_equal(np.isfinite(seconds), fits)
    for narrow, wide in ((Tier.MACHINE, Tier.RACK), (Tier.RACK, Tier.NETWORK)):
        both = fits[:, narrow]
        assert np.all(seconds[both, narrow] <= seconds[both, wide])


@given(clusters, networks, factors, factors)
def test_congestion_never_makes_an_iteration_faster(cluster, network, rack, across):
    gpus, model = all_pairs(cluster)
    clear = iteration_s(gpus, model, cluster, network)
    assert np.all(clear <= iteration_s(gpus, model, cluster, network, rack, 1.0))
    assert np.all(clear <= iteration_s(gpus, model, cluster, network, 1.0, across))
    assert np.all(
        iteration_s(gpus, model, cluster, network, rack, 1.0)
        <= iteration_s(gpus, model, cluster, network, rack, across)
    )


@given(clusters, networks, st.sampled_from(("machine_gb_s", "nic_gb_s")), speeds)
def test_a_faster_link_never_makes_an_iteration_slower(cluster, network, link, speed):
    assume(speed >= getattr(cluster, link))
    gpus, model = all_pairs(cluster)
    slow, fast = (iteration_s(gpus, model, spec, network) for spec in (cluster, replace(cluster, **{link: speed})))
    assert np.all(fast <= slow)


@given(clusters, shares, shares)
def test_more_overlap_never_makes_an_iteration_slower(cluster, one, other):
    gpus, model = all_pairs(cluster)
    less, more = (iteration_s(gpus, model, cluster, Network(overlap=overlap)) for overlap in sorted((one, other)))
    assert np.all(more <= less)
    assert np.all(more >= CATALOGUE.compute_s(cluster.gpu)[model][:, None])


# Tables.


@given(clusters, networks, st.data())
def test_each_job_finds_its_own_times_in_the_tables(cluster, network, data):
    gpus, model = data.draw(jobs_on(cluster))
    tables = iteration_tables(gpus, model, cluster, network)
    jobs = list(zip(gpus.tolist(), model.tolist(), strict=True))
    assert tables.seconds.shape == (1, len(set(jobs)), 3)
    assert len(set(zip(jobs, tables.profile.tolist(), strict=True))) == len(set(jobs))
    best_tier = cluster.best_tier(gpus)
    state = (network.rack_congestion, network.network_congestion)
    clear, now = iteration_s(gpus, model, cluster, network), iteration_s(gpus, model, cluster, network, *state)
    ideal_s = clear[np.arange(len(gpus)), best_tier]
    assert np.array_equal(tables.seconds[0, tables.profile], now)
    assert np.array_equal(tables.compute_s[tables.profile], CATALOGUE.compute_s(cluster.gpu)[model])
    assert np.array_equal(tables.best_tier[tables.profile], best_tier)
    assert np.array_equal(tables.ideal_s[tables.profile], ideal_s)
    assert np.array_equal(tables.sensitivity[tables.profile], clear[:, Tier.NETWORK] / ideal_s - 1.0)


@given(clusters, networks)
def test_without_congestion_the_best_tier_takes_the_ideal_time(cluster, network):
    clear = replace(network, rack_congestion=1.0, network_congestion=1.0)
    tables = iteration_tables(*all_pairs(cluster), cluster, clear)
    at_best_s = tables.seconds[0, np.arange(len(tables.ideal_s)), tables.best_tier]
    assert np.array_equal(at_best_s, tables.ideal_s)
    assert np.all(tables.sensitivity >= 0)
    assert np.all(tables.sensitivity[tables.best_tier == Tier.NETWORK] == 0)


def test_columns_have_the_types_that_the_kernel_reads():
    tables = iteration_tables(np.array([1, 8, 8]), np.array([0, 1, 1]), V100, Network())
    assert (tables.profile.tolist(), tables.step_s.tolist(), tables.step_state.tolist()) == ([0, 1, 1], [0.0], [0])
    integers = {"profile", "best_tier", "step_state"}
    for name, column in tables._asdict().items():
        assert column.dtype == (np.int64 if name in integers else np.float64), name


def test_states_of_the_network_that_come_back_share_a_table():
    network = Network(network_congestion=2.0, schedule=((10.0, 1.0, 8.0), (20.0, 1.0, 2.0), (30.0, 4.0, 8.0)))
    gpus, model = all_pairs(V100)
    tables = iteration_tables(gpus, model, V100, network)
    assert tables.step_s.tolist() == [0.0, 10.0, 20.0, 30.0]
    assert tables.step_state.tolist() == [0, 1, 0, 2]
    for table, state in zip(tables.seconds, ((1.0, 2.0), (1.0, 8.0), (4.0, 8.0)), strict=True):
        assert np.array_equal(table[tables.profile], iteration_s(gpus, model, V100, network, *state))


def test_a_schedule_from_time_zero_replaces_the_constant_factors_at_once():
    network = Network(network_congestion=2.0, schedule=((0.0, 1.0, 8.0),))
    tables = iteration_tables(*all_pairs(V100), V100, network)
    constant = iteration_tables(*all_pairs(V100), V100, Network(network_congestion=8.0))
    assert all(np.array_equal(one, other) for one, other in zip(tables, constant, strict=True))


@given(clusters, networks, st.data())
def test_tables_of_pairs_described_once_are_those_of_the_jobs(cluster, network, data):
    gpus, model = data.draw(jobs_on(cluster))
    pairs = describe_pairs(*all_pairs(cluster), cluster, network)
    shared = tables_of_pairs((gpus - 1) * MODELS + model, pairs, cluster, network)
    own = iteration_tables(gpus, model, cluster, network)
    assert np.array_equal(shared.seconds[:, shared.profile], own.seconds[:, own.profile])
    for name in ("compute_s", "ideal_s", "best_tier", "sensitivity"):
        assert np.array_equal(getattr(shared, name)[shared.profile], getattr(own, name)[own.profile])


def test_pairs_described_under_another_overlap_are_refused():
    pairs = describe_pairs(np.array([8]), np.array([RESNET50]), V100)
    with pytest.raises(ValueError, match="pairs were described with"):
        tables_of_pairs(np.array([0]), pairs, V100, Network(overlap=0.0))


def test_a_demand_above_the_cluster_is_refused_with_its_row_and_both_numbers():
    gpus = np.array([8] * 17 + [96, 128, 1])
    with pytest.raises(ValueError, match="job at row 17 asks for 96 GPUs, the cluster has 64"):
        iteration_tables(gpus, np.zeros(20, np.int64), V100, Network())
    with pytest.raises(ValueError, match="pair at row 1 asks for 65 GPUs, the cluster has 64"):
        describe_pairs(np.array([64, 65]), np.zeros(2, np.int64), V100)


# The network and its schedule.


@pytest.mark.parametrize("name", NETWORKS)
def test_named_networks_congest_what_crosses_racks_most(name):
    network = NETWORKS[name]
    assert 1.0 <= network.rack_congestion <= network.network_congestion


def test_the_named_networks_start_uncongested_and_go_up_to_a_factor_of_80():
    assert [network.network_congestion for network in NETWORKS.values()] == [1.0, 4.0, 20.0, 80.0]


@pytest.mark.parametrize("field", ["overlap", "backward_share"])
@pytest.mark.parametrize("value", [-0.1, 1.1, nan, inf])
def test_shares_must_lie_between_nothing_and_all(field, value):
    with pytest.raises(ValueError, match=f"{field} is .* in \\[0, 1\\]"):
        Network(**{field: value})


@pytest.mark.parametrize("value", [0.5, 0.0, -4.0, nan, inf])
def test_congestion_must_be_finite_and_at_least_one(value):
    for field, tier in (("rack_congestion", "rack"), ("network_congestion", "network")):
        with pytest.raises(ValueError, match=f"network: {tier} congestion is {value}, it must be at least 1"):
            Network(**{field: value})
    with pytest.raises(ValueError, match=f"schedule row 2: rack congestion is {value}"):
        Network(schedule=((0.0, 1.0, 1.0), (1.0, value, 1.0)))


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (((-1.0, 1.0, 1.0),), "row 1 starts at -1.0 s, it must be 0 or later"),
        (((nan, 1.0, 1.0),), "row 1 starts at nan s"),
        (((inf, 1.0, 1.0),), "row 1 starts at inf s"),
        (((5.0, 1.0, 1.0), (5.0, 1.0, 2.0)), "row 2 starts at 5.0 s, it must be later than the row before at 5.0 s"),
        (((5.0, 1.0, 1.0), (9.0, 1.0, 1.0), (7.0, 1.0, 2.0)), "row 3 starts at 7.0 s"),
        (((5.0, 1.0),), "row 1 has 2 numbers"),
    ],
)
def test_a_schedule_must_ascend_from_zero_in_rows_of_three(schedule, message):
    with pytest.raises(ValueError, match=message):
        Network(schedule=schedule)


def test_daily_hours_multiply_the_networks_factor_and_end_again():
    schedule = daily_congestion(2, 9, 17.5, 10.0, rack_congestion=1.5, network_congestion=2.0)
    assert schedule == (
        (9 * HOUR_S, 1.5, 20.0),
        (17.5 * HOUR_S, 1.5, 2.0),
        (DAY_S + 9 * HOUR_S, 1.5, 20.0),
        (DAY_S + 17.5 * HOUR_S, 1.5, 2.0),
    )


def test_congestion_from_midnight_on_is_there_at_the_start():
    assert Network(schedule=daily_congestion(1, 0, 8, 4.0)).steps == ((0.0, 1.0, 4.0), (8 * HOUR_S, 1.0, 1.0))


def test_congestion_all_day_lasts_from_the_first_midnight_to_the_last():
    steps = Network(schedule=daily_congestion(3, 0, 24, 4.0)).steps
    assert [(from_s, factor) for from_s, _, factor in steps] == [
        (0.0, 4.0),
        (DAY_S, 4.0),
        (2 * DAY_S, 4.0),
        (3 * DAY_S, 1.0),
    ]


@given(st.integers(1, 5), st.floats(0, 24), st.floats(0, 24), factors)
def test_every_daily_schedule_is_a_schedule_and_is_congested_in_its_hours_only(days, one, other, factor):
    start, end = sorted((one, other))
    assume(end - start > 1e-3)
    steps = Network(schedule=daily_congestion(days, start, end, factor)).steps
    times = np.array([from_s for from_s, _, _ in steps])

    def congestion_at(time_s: float) -> float:
        return steps[int(np.searchsorted(times, time_s, side="right")) - 1][2]

    for day in range(days):
        assert congestion_at(day * DAY_S + (start + end) / 2 * HOUR_S) == factor
        if start > 1e-3:
            assert congestion_at(day * DAY_S + start / 2 * HOUR_S) == 1.0
    assert congestion_at(days * DAY_S) == 1.0


@pytest.mark.parametrize(("start", "end"), [(8, 8), (17, 9), (-1, 8), (8, 25), (nan, 8)])
def test_daily_hours_that_do_not_ascend_within_a_day_are_refused(start, end):
    with pytest.raises(ValueError, match="hours must ascend within 0 to 24"):
        daily_congestion(1, start, end, 4.0)
