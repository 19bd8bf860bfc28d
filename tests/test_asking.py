"""Rule "Asking": which offers are put to the agent, and when again."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import job_table, scenarios

from ddl_gym import kernel
from ddl_gym.cluster import ClusterSpec
from ddl_gym.policies import POLICIES, Placement
from ddl_gym.simulator import Simulator

# Two machines of two GPUs. X leaves machine 0 at 5 s, so A and B each leave one GPU free; D asks for two at 10 s: a RACK offer.
CLUSTER = ClusterSpec(racks=1, machines_per_rack=2, gpus_per_machine=2)
JOBS = job_table([0.0, 0.0, 0.0, 10.0, 50.0], [1, 1, 1, 2, 4], [10_000.0, 5.0, 700.0, 100.0, 10.0])
POLICY = replace(POLICIES["auto_tuner"], round_s=300.0)


def asking(simulator: Simulator) -> Simulator:
    simulator.world.rules[0].asks = 1
    return simulator


def questions(answers: list[bool], simulator: Simulator) -> list[tuple[float, int, int]]:
    """Time, job and offered tier of each question, answered in turn (the last answer repeats); runs to the end."""
    asked = []
    for turn in range(1_000):
        status = kernel.advance(simulator.world, inf, 1 << 40)
        clock = simulator.world.clock[0]
        if status == kernel.DONE:
            return asked
        assert status == kernel.ASKING
        asked.append((float(clock.now), int(clock.asked_job), int(clock.asked_tier)))
        kernel.answer(simulator.world, answers[min(turn, len(answers) - 1)])
    pytest.fail("the run does not end")


def test_a_job_that_declines_is_asked_again_at_each_round_until_its_best_tier_is_free():
    """B ends at 700 s: then machine 1 is free and D starts there without a question."""
    simulator = asking(Simulator(CLUSTER, JOBS, POLICY))
    assert questions([False], simulator) == [(10.0, 3, 1), (300.0, 3, 1), (600.0, 3, 1)]
    assert simulator.records().start_s[3] == 700.0
    assert simulator.records().tier[3] == 0


def test_an_accepted_offer_starts_the_job_at_once_at_the_offered_tier():
    simulator = asking(Simulator(CLUSTER, JOBS, POLICY))
    assert questions([False, True], simulator) == [(10.0, 3, 1), (300.0, 3, 1)]
    assert simulator.records().start_s[3] == 300.0
    assert simulator.records().tier[3] == 1


@given(scenarios(max_jobs=12), st.lists(st.booleans(), min_size=1, max_size=12))
def test_any_answers_end_with_every_job_finished_and_the_invariants_kept(scenario, answers):
    policy = replace(scenario.policy, preemption=False, placement=Placement.CONSOLIDATE, auto_tuner=True)
    simulator = asking(
        Simulator(scenario.cluster, scenario.jobs, policy, tables=scenario.tables, restore_s=scenario.restore_s)
    )
    best = scenario.cluster.best_tier(scenario.jobs.gpus)
    for _, job, tier in questions(answers, simulator):
        assert tier > best[job]
    simulator.verify()
    assert not np.isnan(simulator.records().finish_s).any()
