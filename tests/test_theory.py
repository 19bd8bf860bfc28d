"""The simulator agrees with what is known without it: queueing theory, limits of the timers, limits of the network."""

from dataclasses import replace
from math import factorial, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import job_table, scenarios

from ddl_gym.cluster import ClusterSpec, Tier
from ddl_gym.jobs import JobRecords
from ddl_gym.network import Network
from ddl_gym.policies import POLICIES, Order, Placement
from ddl_gym.simulator import Simulator
from ddl_gym.workload import Workload

CLUSTER = ClusterSpec(racks=2, machines_per_rack=4, gpus_per_machine=8)
CONGESTED = Network(rack_congestion=2.0, network_congestion=20.0)
WORKLOAD = Workload(
    jobs=300, demand="venus", duration="venus", min_gpus=2, max_gpus=32, max_duration_s=20_000.0, load=1.2
)


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival waits in M/M/c (Erlang 1917; Kleinrock, Queueing Systems I, section 3.5)."""
    waiting = offered**servers / factorial(servers) * servers / (servers - offered)
    return waiting / (sum(offered**k / factorial(k) for k in range(servers)) + waiting)


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (4, 0.8), (8, 0.9)])
def test_the_mean_wait_of_single_gpu_jobs_is_that_of_erlang_c(servers, load):
    service_s, jobs, batches = 100.0, 500_000, 50
    rng = np.random.default_rng(servers)
    gaps_s = rng.exponential(service_s / (servers * load), jobs)
    trace = job_table((np.cumsum(gaps_s) - gaps_s[0]).tolist(), [1] * jobs, rng.exponential(service_s, jobs).tolist())
    cluster = ClusterSpec(racks=1, machines_per_rack=1, gpus_per_machine=servers)
    records = Simulator(cluster, trace, POLICIES["fifo"]).run()
    waits_s = (records.start_s - records.submit_s)[jobs // 10 :]
    means_s = np.array([part.mean() for part in np.array_split(waits_s, batches)])
    half_width_s = 3.5 * means_s.std(ddof=1) / np.sqrt(batches)  # 3.5 standard errors of batch means
    expected_s = erlang_c(servers, servers * load) * service_s / (servers * (1 - load))
    assert abs(means_s.mean() - expected_s) < half_width_s
    assert half_width_s < 0.2 * expected_s


def run(
    policy_name: str, seed: int = 0, network: Network = CONGESTED, cluster: ClusterSpec = CLUSTER, **changes
) -> JobRecords:
    jobs = WORKLOAD.generate(cluster.gpus, seed)
    return Simulator(cluster, jobs, replace(POLICIES[policy_name], **changes), network=network).run()


def assert_same(first: JobRecords, second: JobRecords) -> None:
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_timers_of_zero_are_no_wait():
    assert_same(run("static_timers", machine_timer_s=0.0, rack_timer_s=0.0), run("no_wait"))
    assert not np.array_equal(run("static_timers").finish_s, run("no_wait").finish_s)


@pytest.mark.parametrize("preemption", [False, True])
def test_infinite_timers_never_take_a_tier_worse_than_the_best(preemption):
    records = run("fully_consolidated", preemption=preemption, order=Order.LAS)
    best = CLUSTER.best_tier(records.gpus)
    assert np.array_equal(records.tier, best)
    assert all(records.tier_s[best > tier, tier].sum() == 0 for tier in Tier)
    assert all(records.tier_s[best < tier, tier].sum() == 0 for tier in Tier)
    assert (run("no_wait", preemption=preemption, order=Order.LAS).tier > best).any()


def test_an_infinitely_fast_network_makes_all_tiers_equal():
    links = {"machine_gb_s": inf, "nic_gb_s": inf, "machine_alpha_s": 0.0, "rack_alpha_s": 0.0, "network_alpha_s": 0.0}
    records = run("no_wait", network=Network(), cluster=replace(CLUSTER, **links))
    assert (records.tier_s[:, 1:].sum(axis=0) > 0).all()
    assert np.allclose(records.running_s, records.duration_s, rtol=1e-12)
    assert (records.communication_s == 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_full_consolidation_communicates_less_than_no_wait_under_congestion(seed):
    shares = [
        (records.gpus @ records.communication_s) / (records.gpus @ records.running_s)
        for records in (run(name, seed) for name in ("fully_consolidated", "no_wait"))
    ]
    assert shares[0] < 0.5 * shares[1]


@given(scenarios(), st.sampled_from(["no_wait", "fifo", "las"]))
def test_without_timers_no_job_waits_while_the_cluster_could_hold_it(scenario, name):
    policy = POLICIES[name]
    assert (policy.machine_timer_s, policy.rack_timer_s, policy.placement) == (0.0, 0.0, Placement.CONSOLIDATE)
    simulator = Simulator(scenario.cluster, scenario.jobs, policy, tables=scenario.tables, restore_s=0.0)
    for _ in range(200):
        if simulator.step_instant():
            break
        waiting = simulator.world.jobs["gpus"][simulator.world.jobs["status"] == 1]
        assert not len(waiting) or waiting.min() > simulator.world.clock[0].free


@given(scenarios())
def test_completed_work_is_exactly_what_the_trace_asks_for(scenario):
    policy = replace(scenario.policy, preemption=False)
    simulator = Simulator(scenario.cluster, scenario.jobs, policy, tables=scenario.tables, restore_s=scenario.restore_s)
    simulator.advance(scenario.actions[-1].until_s)
    records = simulator.records()
    finished = ~np.isnan(records.finish_s)
    lower_s = scenario.jobs.duration_s * (scenario.tables.compute_s / scenario.tables.ideal_s)[scenario.tables.profile]
    assert (records.running_s[finished] >= lower_s[finished] * (1 - 1e-9) - 1e-9).all()
    assert np.allclose(
        (records.finish_s - records.start_s)[finished], records.running_s[finished], rtol=1e-9, atol=1e-9
    )


def test_a_congestion_step_slows_exactly_the_rest_of_the_work():
    cluster = ClusterSpec(racks=2, machines_per_rack=1, gpus_per_machine=1)
    jobs = job_table([0.0], [2], [1_000.0])
    network = Network(schedule=((400.0, 1.0, 50.0),))
    records = Simulator(cluster, jobs, POLICIES["fifo"], network=network).run()
    tables = Simulator(cluster, jobs, POLICIES["fifo"], network=network).tables
    slow, fast = tables.seconds[1, 0, 2], tables.seconds[0, 0, 2]
    assert slow > fast
    assert records.finish_s[0] == pytest.approx(400.0 + 600.0 * slow / fast, rel=1e-12)


def test_a_trace_of_one_instant_is_served_in_priority_order_not_in_index_order():
    cluster = ClusterSpec(racks=1, machines_per_rack=1, gpus_per_machine=1)
    jobs = job_table([0.0] * 4, [1] * 4, [40.0, 10.0, 30.0, 20.0])
    records = Simulator(cluster, jobs, replace(POLICIES["srtf"], preemption=False)).run()
    assert records.start_s.tolist() == [60.0, 0.0, 30.0, 10.0]


@pytest.mark.parametrize("name", POLICIES)
def test_every_named_policy_finishes_every_job(name):
    records = run(name)
    assert not np.isnan(records.finish_s).any()
    assert (records.running_s >= records.duration_s * (1 - 1e-9)).all()


@pytest.mark.slow
def test_a_run_in_which_preemption_forbids_all_progress_is_given_up():
    cluster = ClusterSpec(racks=1, machines_per_rack=1, gpus_per_machine=1)
    jobs = job_table([0.0] * 4, [1] * 4, [1_000.0] * 4)
    policy = replace(POLICIES["las"], quantum_s=0.0)
    with pytest.raises(ValueError, match="preemptions without a finished job"):
        Simulator(cluster, jobs, policy, restore_s=700.0).run()
