"""The compiled kernel and the readable reference make the same schedule, to the bit."""

from math import inf

import numpy as np
import pytest
from hypothesis import given
from reference_simulator import ReferenceSimulator
from strategies import Scenario, job_table, scenarios

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobRecords
from ddl_gym.policies import POLICIES
from ddl_gym.simulator import Simulator


def assert_equal_records(got: JobRecords, expected: JobRecords) -> None:
    for name in JobRecords._fields:
        kwargs = {} if name in ("job_id", "user") else {"equal_nan": True}
        assert np.array_equal(getattr(got, name), getattr(expected, name), **kwargs), (
            f"{name}: {getattr(got, name)} is not {getattr(expected, name)}"
        )


def simulator_of(scenario: Scenario, *, log: bool = False) -> Simulator:
    cluster, jobs, _, policy, tables, restore_s, _ = scenario
    return Simulator(cluster, jobs, policy, tables=tables, restore_s=restore_s, log=log)


def act(simulator: Simulator | ReferenceSimulator, scenario: Scenario) -> None:
    for action in scenario.actions:
        if action.timers_s is not None:
            simulator.set_timers(*action.timers_s)
        if action.margin is not None:
            simulator.set_preemption_margin(action.margin)
        if action.until_s >= simulator.now_s:
            simulator.advance(action.until_s)


@given(scenarios())
def test_kernel_and_reference_schedule_alike(scenario):
    kernel = simulator_of(scenario)
    reference = ReferenceSimulator(
        scenario.cluster, scenario.jobs, scenario.policy, scenario.tables, scenario.restore_s, scenario.skew
    )
    act(kernel, scenario)
    act(reference, scenario)
    assert_equal_records(kernel.records(), reference.records())
    assert kernel.now_s == reference.now_s
    assert kernel.world.machines["free"].tolist() == reference.free
    assert kernel.timers_s.T.tolist() == reference.timers


@given(scenarios())
def test_the_invariants_hold_after_every_instant(scenario):
    simulator = simulator_of(scenario, log=True)
    until_s = scenario.actions[-1].until_s
    while simulator.now_s < until_s and not simulator.step_instant():
        simulator.verify()
    simulator.verify()
    records, segments = simulator.records(), simulator.segments()
    held = np.bincount(segments.job, segments.gpus * (segments.end_s - segments.start_s), scenario.jobs.jobs)
    assert np.allclose(held, records.running_s * records.gpus)


@given(scenarios())
def test_a_restored_snapshot_runs_on_as_the_original(scenario):
    original, other = simulator_of(scenario), simulator_of(scenario)
    half_s, end_s = scenario.actions[-1].until_s / 2, scenario.actions[-1].until_s
    original.advance(half_s)
    snapshot = original.snapshot()
    original.advance(end_s)
    other.restore(snapshot)
    assert other.now_s == half_s or other.finished
    other.advance(max(end_s, other.now_s))
    assert_equal_records(other.records(), original.records())
    original.restore(snapshot)
    original.advance(max(end_s, original.now_s))
    assert_equal_records(original.records(), other.records())


@given(scenarios())
def test_stops_on_the_way_change_nothing(scenario):
    straight, halting = simulator_of(scenario), simulator_of(scenario)
    end_s = scenario.actions[-1].until_s
    straight.advance(end_s)
    for until_s in np.linspace(0.0, end_s, 7):
        if not halting.finished:
            halting.advance(until_s)
    assert_equal_records(halting.records(), straight.records())


@given(scenarios())
def test_job_seconds_sum_to_the_time_that_jobs_spend_in_the_system(scenario):
    simulator = simulator_of(scenario)
    simulator.advance(scenario.actions[-1].until_s)
    records = simulator.records()
    until_s = np.where(np.isnan(records.finish_s), simulator.now_s, records.finish_s)
    present_s = np.maximum(0.0, until_s - records.submit_s)
    assert np.isclose(simulator.world.clock[0].job_seconds, present_s.sum(), atol=1e-9)
    assert simulator.now_s < inf


def test_an_incomplete_snapshot_is_refused():
    cluster = ClusterSpec(racks=1, machines_per_rack=1, gpus_per_machine=1)
    simulator = Simulator(cluster, job_table([0.0], [1], [5.0]), POLICIES["fifo"])
    snapshot = simulator.snapshot()
    with pytest.raises(ValueError, match="incomplete"):
        simulator.restore({"clock": snapshot["clock"]})
    with pytest.raises(ValueError, match="incomplete"):
        Simulator(cluster, job_table([0.0], [1], [5.0]), POLICIES["fifo"], log=True).restore(snapshot)
