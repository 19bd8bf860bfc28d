"""Every feature has the value that its description gives it, on runs small enough to follow by hand; on any run it stays in bounds."""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Scenario, job_table, scenarios

from ddl_gym import kernel, observation
from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobTable
from ddl_gym.kernel import World
from ddl_gym.network import IterationTables
from ddl_gym.observation import BY_CLASS, GLOBAL, OFFER, feature_names, observe, observe_rows
from ddl_gym.policies import Order, Policy
from ddl_gym.simulator import Simulator

TIERS_S = ((1.0, 1.5, 3.0), (1.0, 2.0, 9.0))  # iteration time by tier, free network and congested one


def of_10(count: float) -> float:
    return count / (count + 10)


def of_1(share: float) -> float:
    return share / (share + 1)


def of_1800(seconds: float) -> float:
    return seconds / (seconds + 1_800)


def hand_made_tables(cluster: ClusterSpec, jobs: JobTable, congested_from_s: float = inf) -> IterationTables:
    best_tier = cluster.best_tier(jobs.gpus)
    seconds = np.repeat(np.array(TIERS_S)[:, None, :], jobs.jobs, axis=1)
    for row, tier in enumerate(best_tier):
        seconds[:, row, :tier] = inf
    ideal_s = seconds[0, np.arange(jobs.jobs), best_tier]
    steps = 1 if congested_from_s == inf else 2
    return IterationTables(
        profile=np.arange(jobs.jobs),
        seconds=seconds,
        compute_s=np.ones(jobs.jobs),
        ideal_s=ideal_s,
        best_tier=best_tier,
        sensitivity=3.0 / ideal_s - 1.0,
        step_s=np.array([0.0, congested_from_s])[:steps],
        step_state=np.array([0, 1])[:steps],
    )


def seen(simulator: Simulator, prefix: str = "", job_offer: bool = False) -> dict[str, float]:
    """Features by name; with a prefix only those, without it."""
    names = feature_names(simulator.policy, job_offer)
    values = observe(simulator.world, simulator.policy, job_offer).tolist()
    return {n.removeprefix(prefix): v for n, v in zip(names, values, strict=True) if n.startswith(prefix)}


def approx(expected: dict[str, float]) -> Any:
    return pytest.approx(expected, rel=1e-6)


@pytest.fixture
def simulator() -> Simulator:
    """2 racks of 2 machines of 4 GPUs.

    At 0 s: j0 fills machine 0 (4 GPUs), j1 takes 3 of machine 1, j2 takes 6 of rack 1, leaving 2 on machine 3. From 10 s on j3 (3 GPUs)
    is offered NETWORK, from 50 s on j4 (5 GPUs) nothing. At 150 s the network is congested, at 210 s j3 accepts, at 400 s j1 finishes.
    """
    cluster = ClusterSpec(racks=2, machines_per_rack=2, gpus_per_machine=4)
    jobs = job_table([0.0, 0.0, 0.0, 10.0, 50.0, 5_000.0], [4, 3, 6, 3, 5, 1], [9e3, 400.0, 9e3, 9e3, 9e3, 9e3])
    policy = Policy(
        order=Order.FIFO, machine_timer_s=100.0, rack_timer_s=200.0, preemption_margin=0.25, demand_edges=(1, 4)
    )
    return Simulator(cluster, jobs, policy, tables=hand_made_tables(cluster, jobs, congested_from_s=150.0))


def test_global_features_while_jobs_hold_out(simulator):
    simulator.advance(100.0)
    expected = {
        "submitted": 5 / 6,
        "finished": 0.0,
        "free": 3 / 16,
        "free.machine": 2 / 4,
        "free.rack": 2 / 8,
        "machines.full": 2 / 4,
        "machines.quarter": 1 / 4,
        "machines.half": 1 / 4,
        "machines.most": 0.0,
        "machines.almost": 0.0,
        "machines.idle": 0.0,
        "rack_free.min": 1 / 8,
        "rack_free.mean": 3 / 16,
        "running.machine": 7 / 16,
        "running.rack": 6 / 16,
        "running.network": 0.0,
        "running.worse": 0.0,
        "queued.jobs": of_10(2),
        "queued.gpus": of_1(8 / 16),
        "arrivals": of_10(5),
        "completions": 0.0,
        "slowdown.machine": 0.0,
        "slowdown.rack": 0.0,
        "slowdown.network": 0.0,
        "measured.machine": 1.0,
        "measured.rack": 1.0,
        "measured.network": 0.0,
        "sensitivity.queued": of_1((2.0 + 1.0) / 2),  # j4's best tier is RACK: 3 / 1.5 - 1
        "sensitivity.running": of_1((2.0 + 2.0 + 1.0) / 3),
        "margin": 0.25,
    }
    features = seen(simulator)
    assert {name: features[name] for name in GLOBAL} == approx(expected)


def test_global_features_once_a_job_crosses_racks_on_a_congested_network(simulator):
    simulator.advance(500.0)
    features = seen(simulator)
    expected = {
        "finished": 1 / 6,
        "free": 3 / 16,
        "free.machine": 3 / 4,
        "free.rack": 3 / 8,
        "machines.full": 3 / 4,
        "machines.most": 1 / 4,
        "machines.quarter": 0.0,
        "machines.half": 0.0,
        "rack_free.min": 0.0,
        "running.machine": 4 / 16,
        "running.rack": 6 / 16,
        "running.network": 3 / 16,
        "running.worse": 3 / 16,
        "completions": of_10(1),
        "slowdown.machine": 0.0,
        "slowdown.rack": of_1(2.0 / 1.5 - 1),
        "slowdown.network": of_1(9.0 / 1.0 - 1),
        "measured.network": 1.0,
        "sensitivity.queued": of_1(9.0 / 1.5 - 1),
        "sensitivity.running": of_1((8.0 + 5.0 + 8.0) / 3),
    }
    assert {name: features[name] for name in expected} == approx(expected)


def test_slowdown_weighs_jobs_by_their_gpus():
    cluster = ClusterSpec(racks=1, machines_per_rack=3, gpus_per_machine=4)
    # j0 and j1 leave one GPU each, j2 fills the third machine; j3 takes the two at RACK although it fits a machine.
    jobs = job_table([0.0, 0.0, 0.0, 1.0], [3, 3, 4, 2], [9e3] * 4)
    simulator = Simulator(cluster, jobs, Policy(order=Order.FIFO), tables=hand_made_tables(cluster, jobs))
    simulator.advance(10.0)
    assert seen(simulator)["slowdown.rack"] == pytest.approx(of_1(0.5))
    simulator.world.jobs[2].tier = 1  # as if j2 ran there too, at a third of its speed
    simulator.world.iteration_s[0, 2, 1] = 3.0
    assert seen(simulator)["slowdown.rack"] == pytest.approx(of_1((2 * 0.5 + 4 * 2.0) / 6))


@pytest.mark.parametrize(
    ("gpus_per_machine", "demand", "bin_of_one_machine"),
    [
        (8, 8, "full"),
        (8, 7, "quarter"),
        (8, 6, "quarter"),
        (8, 5, "half"),
        (8, 4, "half"),
        (8, 3, "most"),
        (8, 2, "most"),
        (8, 1, "almost"),
        (1, 1, "full"),
        (2, 1, "half"),
        (3, 2, "half"),
        (3, 1, "most"),
    ],
)
def test_machines_are_counted_by_their_share_of_free_gpus(gpus_per_machine, demand, bin_of_one_machine):
    cluster = ClusterSpec(racks=1, machines_per_rack=5, gpus_per_machine=gpus_per_machine)
    simulator = Simulator(cluster, job_table([0.0], [demand], [100.0]), Policy())
    simulator.advance(1.0)
    bins = seen(simulator, "machines.")
    filled = {name: share for name, share in bins.items() if share > 0}
    assert filled == approx({bin_of_one_machine: 1 / 5, "idle": 4 / 5})


def test_class_features_while_jobs_wait(simulator):
    simulator.world.rules[0].auto_tuner = 2
    simulator.advance(100.0)
    timers = {
        "timer.machine": of_1800(100),
        "timer.rack": of_1800(200),
        "tuned.machine": of_1800(100),
        "tuned.rack": of_1800(200),
        "window_mean.machine": 0.0,
        "window_mean.rack": 0.0,
        "window_deviation.machine": 0.0,
        "window_deviation.rack": 0.0,
    }
    small = dict.fromkeys(BY_CLASS, 0.0) | timers
    middle = small | {
        "queued.jobs": of_10(1),
        "queued.gpus": of_1(3 / 16),
        "starvation.max": of_1800(90),
        "starvation.mean": of_1800(90),
        "running.gpus": 7 / 16,
        "window.machine": 2 / 64,  # j0 and j1 started at MACHINE
    }
    large = small | {
        "queued.jobs": of_10(1),
        "queued.gpus": of_1(5 / 16),
        "starvation.max": of_1800(50),
        "starvation.mean": of_1800(50),
        "running.gpus": 6 / 16,
        "window.rack": 1 / 64,
    }
    for timer_class, expected in enumerate((small, middle, large)):
        assert seen(simulator, f"class{timer_class}.") == approx(expected)


def test_starvation_is_the_longest_and_the_mean_over_all_demands_of_the_class():
    cluster = ClusterSpec(racks=1, machines_per_rack=1, gpus_per_machine=8)
    jobs = job_table([0.0, 10.0, 20.0, 60.0], [8, 5, 6, 5], [9e3] * 4)
    simulator = Simulator(cluster, jobs, Policy(order=Order.FIFO, demand_edges=()))
    simulator.advance(100.0)
    features = seen(simulator, "class0.")
    assert features["queued.jobs"] == pytest.approx(of_10(3))
    assert features["queued.gpus"] == pytest.approx(of_1(16 / 8))
    assert features["starvation.max"] == pytest.approx(of_1800(90))
    assert features["starvation.mean"] == pytest.approx(of_1800((90 + 80 + 40) / 3))


def test_a_running_job_counts_for_the_class_that_it_was_queued_in():
    cluster = ClusterSpec(racks=1, machines_per_rack=1, gpus_per_machine=4)
    policy = Policy(demand_edges=(), service_edges=(10.0,))
    simulator = Simulator(cluster, job_table([0.0], [3], [9e3]), policy)
    simulator.advance(1_000.0)
    assert seen(simulator)["class0.running.gpus"] == pytest.approx(3 / 4)
    assert seen(simulator)["class1.running.gpus"] == 0.0


def test_windows_and_tuned_timers_are_those_of_the_auto_tuner():
    cluster = ClusterSpec(racks=1, machines_per_rack=1, gpus_per_machine=2)
    policy = Policy(
        order=Order.FIFO, machine_timer_s=50.0, rack_timer_s=inf, auto_tuner=True, tuner_window=4, demand_edges=()
    )
    simulator = Simulator(cluster, job_table([0.0] * 4, [2] * 4, [100.0] * 3 + [9e3]), policy, restore_s=0.0)
    simulator.world.rules[0].auto_tuner = 2
    simulator.advance(250.0)
    assert seen(simulator)["class0.window.machine"] == 3 / 4
    assert seen(simulator)["class0.window_mean.machine"] == 0.0  # no round yet
    simulator.advance(350.0)
    deviation_s = np.std([0.0, 100.0, 200.0, 300.0])
    expected = dict.fromkeys(BY_CLASS, 0.0) | {
        "running.gpus": 1.0,
        "timer.machine": of_1800(50),
        "timer.rack": 1.0,
        "tuned.machine": of_1800(150 + deviation_s),
        "tuned.rack": 1.0,
        "window.machine": 1.0,
        "window_mean.machine": of_1800(150),
        "window_deviation.machine": of_1800(deviation_s),
    }
    assert seen(simulator, "class0.") == approx(expected)
    simulator.world.timers[0, 1].mean_s, simulator.world.timers[0, 1].deviation_s = 600.0, 200.0
    assert seen(simulator)["class0.window_mean.rack"] == pytest.approx(of_1800(600))
    assert seen(simulator)["class0.window_deviation.rack"] == pytest.approx(of_1800(200))


def asking_simulator() -> Simulator:
    """A rack of 3 machines of 4 GPUs, shortest remaining time first.

    At 0 s: P (1) and X (2) share machine 0, Y (3) is on machine 1, A (3) on machine 2. At the round of 300 s B (4) takes machine 2 from
    A. At 400 s P finishes: A is offered the three GPUs free on machines 0 and 1.
    """
    cluster = ClusterSpec(racks=1, machines_per_rack=3, gpus_per_machine=4)
    jobs = job_table([0.0] * 4 + [10.0], [1, 2, 3, 3, 4], [400.0, 1_000.0, 2_000.0, 9_000.0, 1_000.0])
    policy = Policy(order=Order.SRTF, preemption=True, quantum_s=0.0, demand_edges=(2,))
    simulator = Simulator(cluster, jobs, policy, tables=hand_made_tables(cluster, jobs))
    simulator.world.rules[0].asks = 1
    simulator.world.timers["tuned_s"] = [[1.0, 2.0], [600.0, inf]]
    return simulator


def test_offer_features_describe_the_job_that_asks():
    simulator = asking_simulator()
    assert kernel.advance(simulator.world, inf, 1 << 62) == kernel.ASKING
    assert (simulator.now_s, simulator.world.clock[0].asked_job) == (400.0, 3)
    features = seen(simulator, job_offer=True)
    expected = {
        "asked": 1.0,
        "offer.rack": 1.0,
        "offer.network": 0.0,
        "offer.gpus": 3 / 12,
        "offer.machines": of_1(3 / 4),
        "offer.loss": of_1(1.5 - 1),
        "offer.starvation": of_1800(100),
        "offer.service": 900 / (900 + 36_000),
        "offer.preemptions": of_1(1),
        "offer.tuned.machine": of_1800(600),
        "offer.tuned.rack": 1.0,
    }
    assert {name: features[name] for name in OFFER} == approx(expected)


def test_an_offer_across_racks_is_marked_as_such(simulator):
    simulator.world.rules[0].asks = 1
    assert kernel.advance(simulator.world, inf, 1 << 62) == kernel.ASKING
    features = seen(simulator, job_offer=True)
    assert (features["offer.rack"], features["offer.network"]) == (0.0, 1.0)
    assert features["offer.loss"] == pytest.approx(of_1(3.0 - 1))


def test_offer_features_are_zero_when_nothing_is_asked():
    simulator = asking_simulator()
    kernel.advance(simulator.world, 399.0, 1 << 62)
    features = seen(simulator, job_offer=True)
    assert [features[name] for name in OFFER] == [0.0] * len(OFFER)


def test_without_job_offer_the_same_features_are_seen_but_for_the_offer():
    simulator = asking_simulator()
    kernel.advance(simulator.world, inf, 1 << 62)
    without, everything = (observe(simulator.world, simulator.policy, job_offer) for job_offer in (False, True))
    assert len(everything) == len(without) + len(OFFER)
    assert np.array_equal(everything[: len(without)], without)


# === Names, spaces, decoding ===


def edges_of(count: int) -> tuple[int, ...]:
    return tuple(range(1, count + 1))


@given(st.integers(0, 6), st.integers(0, 2), st.integers(0, 2), st.booleans())
def test_names_are_distinct_and_as_many_as_the_classes_make(demand, sensitivity, service, job_offer):
    policy = Policy(
        demand_edges=edges_of(demand), sensitivity_edges=edges_of(sensitivity), service_edges=edges_of(service)
    )
    names = feature_names(policy, job_offer)
    classes = (demand + 1) * (sensitivity + 1) * (service + 1)
    assert len(set(names)) == len(names) == len(GLOBAL) + classes * len(BY_CLASS) + job_offer * len(OFFER)
    assert observation.observation_space(policy, job_offer).shape == (len(names),)
    assert [observation.feature_index(policy, name) for name in names] == list(range(len(names)))


def test_an_unknown_feature_is_refused_by_name():
    with pytest.raises(ValueError, match=r"unknown feature 'class7\.queued\.jobs'.*class0\. to class6\."):
        observation.feature_index(Policy(), "class7.queued.jobs")


def test_class_features_are_those_named_after_the_classes(simulator):
    simulator.advance(100.0)
    batch = np.stack([observe(simulator.world, simulator.policy, job_offer) for job_offer in (True, True)])
    names = feature_names(simulator.policy)
    for name in BY_CLASS:
        expected = batch[:, [names.index(f"class{c}.{name}") for c in range(3)]]
        assert np.array_equal(observation.class_features(batch, simulator.policy, name), expected)


seconds = st.just(0.0) | st.just(inf) | st.floats(1e-3, 1e7)


@given(st.lists(seconds, min_size=12, max_size=12))
def test_timers_decode_to_what_they_were(values):
    policy = Policy(demand_edges=(1, 4))
    simulator = Simulator(
        ClusterSpec(racks=1, machines_per_rack=1, gpus_per_machine=1), job_table([0.0], [1], [1.0]), policy
    )
    in_force_s, tuned_s = np.array(values).reshape(2, 3, 2)
    simulator.world.timers["timer_s"], simulator.world.timers["tuned_s"] = in_force_s, tuned_s
    for job_offer in (False, True):
        batch = np.stack([observe(simulator.world, policy, job_offer)] * 2)
        for decoded, expected in (
            (observation.timers_in_force(batch, policy), in_force_s),
            (observation.tuned_timers(batch, policy), tuned_s),
        ):
            assert decoded.shape == (2, 3, 2)
            finite = np.isfinite(expected)
            assert np.array_equal(decoded[1][~finite], expected[~finite])
            error_s = np.abs(decoded[0][finite] - expected[finite])
            assert np.all(error_s <= 1e-7 * expected[finite] * (1 + expected[finite] / 1_800))


# === Rows ===


def stack(*worlds: World) -> World:
    return World(*(np.stack(columns) for columns in zip(*worlds, strict=True)))


def copied(world: World) -> World:
    return World(*(column.copy() for column in world))


def test_rows_are_observed_each_by_itself(simulator):
    simulator.advance(100.0)
    early = copied(simulator.world)
    simulator.advance(500.0)
    worlds = stack(early, simulator.world, early)
    out = np.full((3, len(feature_names(simulator.policy))), 7.0, np.float32)
    before = np.array([[9.0, 9.0], [2.0, 1.0], [9.0, 9.0]])
    observe_rows(worlds, 1, 2, before, out)
    assert np.all(out[[0, 2]] == 7.0)
    observe_rows(worlds, 0, 3, np.zeros((3, 2)), out)
    assert np.array_equal(out[1], observe(simulator.world, simulator.policy))
    assert np.array_equal(out[0], observe(early, simulator.policy))
    assert np.array_equal(out[0], out[2]) and not np.array_equal(out[0], out[1])


def test_arrivals_and_completions_are_those_since_the_last_decision(simulator):
    simulator.advance(5_500.0)
    out = np.zeros((1, len(feature_names(simulator.policy))), np.float32)
    observe_rows(stack(simulator.world), 0, 1, np.array([[4.0, 0.0]]), out)
    features = dict(zip(feature_names(simulator.policy), out[0].tolist(), strict=True))
    assert features["arrivals"] == pytest.approx(of_10(2))
    assert features["completions"] == pytest.approx(of_10(1))


def test_a_row_without_a_run_is_all_zero(simulator):
    empty = World(*(np.zeros_like(column) for column in simulator.world))
    out = np.ones((1, len(feature_names(simulator.policy, job_offer=True))), np.float32)
    observe_rows(stack(empty), 0, 1, np.zeros((1, 2)), out)
    assert not out.any()


# === Any run ===


def moments(scenario: Scenario) -> Iterator[Simulator]:
    """The run at its decisions, and between them."""
    cluster, jobs, _, policy, tables, restore_s, actions = scenario
    simulator = Simulator(cluster, jobs, policy, tables=tables, restore_s=restore_s)
    yield simulator
    for action in actions:
        if action.timers_s is not None:
            simulator.set_timers(*action.timers_s)
        if action.margin is not None:
            simulator.set_preemption_margin(action.margin)
        for until_s in np.linspace(simulator.now_s, max(simulator.now_s, action.until_s), 6)[1:]:
            if until_s >= simulator.now_s:
                simulator.advance(until_s)
                yield simulator


def questions(scenario: Scenario, answers: list[bool]) -> Iterator[Simulator]:
    """The run at its offers, answered so."""
    cluster, jobs, _, policy, tables, restore_s, actions = scenario
    simulator = Simulator(cluster, jobs, policy, tables=tables, restore_s=restore_s)
    simulator.world.rules[0].asks = 1
    for accept in answers:
        if kernel.advance(simulator.world, actions[-1].until_s, 1 << 62) != kernel.ASKING:
            return
        yield simulator
        kernel.answer(simulator.world, accept)


answers = st.lists(st.booleans(), min_size=1, max_size=30)


def assert_in_bounds(simulator: Simulator, job_offer: bool) -> None:
    space = observation.observation_space(simulator.policy, job_offer)
    got = observe(simulator.world, simulator.policy, job_offer)
    assert space.contains(got), dict(zip(feature_names(simulator.policy, job_offer), got.tolist(), strict=True))


@given(scenarios())
def test_features_stay_in_bounds(scenario):
    for simulator in moments(scenario):
        assert_in_bounds(simulator, job_offer=False)


@given(scenarios(), answers)
def test_features_stay_in_bounds_at_every_offer(scenario, accepted):
    for simulator in questions(scenario, accepted):
        assert_in_bounds(simulator, job_offer=True)
        assert seen(simulator, job_offer=True)["asked"] == 1.0


def test_shares_that_add_up_to_one_do_not_pass_it_by_rounding():
    for gpus in (3, 7, 49, 300, 1_001):
        cluster = ClusterSpec(racks=1, machines_per_rack=gpus, gpus_per_machine=1)
        simulator = Simulator(cluster, job_table([0.0] * gpus, [1] * gpus, [10.0] * gpus), Policy(demand_edges=()))
        simulator.advance(1.0)
        features = seen(simulator)
        assert features["class0.running.gpus"] == features["running.machine"] == features["machines.full"] == 1.0


def recount(simulator: Simulator) -> dict[str, float]:
    """The features of queue and running jobs, from the jobs' status alone."""
    world, now_s, gpus = simulator.world, simulator.now_s, simulator.cluster.gpus
    job = world.jobs
    iteration_s = world.iteration_s[world.clock[0].network_state]
    ideal_s = world.profiles["ideal_s"]
    queued, running = (np.flatnonzero(job["status"] == status) for status in (kernel.QUEUED, kernel.RUNNING))

    def of(jobs: np.ndarray, loss: np.ndarray, weight: np.ndarray) -> float:
        return of_1(max(0.0, np.average(loss, weights=weight))) if len(jobs) else 0.0

    def loss_at(jobs: np.ndarray, tier: Any) -> np.ndarray:
        return iteration_s[job["profile"][jobs], tier] / ideal_s[job["profile"][jobs]] - 1

    counted = {
        "queued.jobs": of_10(len(queued)),
        "queued.gpus": of_1(job["gpus"][queued].sum() / gpus),
        "running.worse": job["gpus"][running][job["tier"][running] > job["best_tier"][running]].sum() / gpus,
        "sensitivity.queued": of(queued, loss_at(queued, 2), np.ones(len(queued))),
        "sensitivity.running": of(running, loss_at(running, 2), np.ones(len(running))),
    }
    for index, tier in enumerate(("machine", "rack", "network")):
        there = running[job["tier"][running] == index]
        counted[f"running.{tier}"] = job["gpus"][there].sum() / gpus
        counted[f"measured.{tier}"] = float(len(there) > 0)
        counted[f"slowdown.{tier}"] = of(there, loss_at(there, index), job["gpus"][there])
    timer_class = world.buckets["timer_class"][job["bucket"]]
    for c in range(simulator.policy.classes):
        waiting = queued[timer_class[queued] == c]
        starvation_s = now_s - job["enqueue_s"][waiting] if len(waiting) else np.zeros(1)
        counted |= {
            f"class{c}.queued.jobs": of_10(len(waiting)),
            f"class{c}.queued.gpus": of_1(job["gpus"][waiting].sum() / gpus),
            f"class{c}.starvation.max": of_1800(starvation_s.max()),
            f"class{c}.starvation.mean": of_1800(starvation_s.mean()),
            f"class{c}.running.gpus": job["gpus"][running[timer_class[running] == c]].sum() / gpus,
        }
    return counted


@given(scenarios())
def test_the_walk_over_queue_and_heap_misses_no_job(scenario):
    for simulator in moments(scenario):
        features, expected = seen(simulator), recount(simulator)
        assert {name: features[name] for name in expected} == pytest.approx(expected, rel=2e-6, abs=1e-7)


def interpreted() -> Any:
    """Within it the module's compiled functions run as the plain Python that they were compiled from."""
    functions: dict[str, Callable[..., Any]] = {
        name: value.py_func for name, value in vars(observation).items() if hasattr(value, "py_func")
    }
    return patch.multiple(observation, **functions)


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="compares compiled code with interpreted code")
@given(scenarios(max_jobs=12), answers)
def test_compiled_and_interpreted_features_are_equal_to_the_bit(scenario, accepted):
    for runs, job_offer in ((moments(scenario), False), (questions(scenario, accepted), True)):
        for simulator in runs:
            compiled = observe(simulator.world, simulator.policy, job_offer)
            with interpreted():
                assert np.array_equal(observe(simulator.world, simulator.policy, job_offer), compiled)
