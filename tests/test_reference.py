"""Small schedules worked out by hand, one rule each; every implementation of the simulator must give them.

Unless a test says otherwise an iteration takes 1 s on one machine, 2 s in one rack and 4 s across racks, half a second
of it compute; restores are free, timers are 0 and rounds far away. A row of a trace is (submit_s, gpus, duration_s) and
maybe a model; duration_s is the run time at the best tier.
"""

from collections.abc import Callable
from math import inf, isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_simulator import ReferenceSimulator
from strategies import Scenario, job_table, scenarios

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobTable
from ddl_gym.models import CATALOGUE
from ddl_gym.network import IterationTables
from ddl_gym.policies import Order, Placement, Policy
from ddl_gym.simulator import Simulator

MACHINE, RACK, NETWORK = 0, 1, 2
NORMAL_S = (1.0, 2.0, 4.0)
CONGESTED_S = (2.0, 4.0, 8.0)
PLAIN_MODEL, SKEWED_MODEL = int(np.argmin(CATALOGUE.skew)), int(np.argmax(CATALOGUE.skew))
SKEW_LIMIT = float(CATALOGUE.skew[PLAIN_MODEL] + CATALOGUE.skew[SKEWED_MODEL]) / 2


def reference(cluster: ClusterSpec, jobs: JobTable, policy: Policy, tables: IterationTables, restore_s: float):
    return ReferenceSimulator(cluster, jobs, policy, tables, restore_s, CATALOGUE.skew[jobs.model])


def kernel(cluster, jobs, policy, tables, restore_s):
    return Simulator(cluster, jobs, policy, tables=tables, restore_s=restore_s)


IMPLEMENTATIONS = {"reference": reference, "kernel": kernel}


@pytest.fixture(params=IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS.keys())
def simulate(request: pytest.FixtureRequest) -> Callable:
    """Run rows of jobs on (racks, machines per rack, GPUs per machine) until `until_s`; returns the simulator."""

    def run(shape, rows, *, until_s=inf, restore_s=0.0, states=(NORMAL_S,), steps=((0.0, 0),), **fields):
        racks, machines_per_rack, gpus_per_machine = shape
        cluster = ClusterSpec(racks=racks, machines_per_rack=machines_per_rack, gpus_per_machine=gpus_per_machine)
        submit_s, gpus, duration_s, *model = (list(column) for column in zip(*rows, strict=True))
        jobs = job_table(submit_s, gpus, duration_s, *model)
        policy = Policy(**{"order": Order.FIFO, "round_s": 1e6, "quantum_s": 0.0, "demand_edges": (), **fields})
        simulator = request.param(cluster, jobs, policy, tables_by_tier(cluster, jobs, states, steps), restore_s)
        simulator.advance(until_s)
        return simulator

    return run


def tables_by_tier(cluster: ClusterSpec, jobs: JobTable, states, steps) -> IterationTables:
    """The same seconds a tier for all jobs; profile 0, 1, 2 = the best tier."""
    per_machine = cluster.gpus_per_machine
    per_rack = per_machine * cluster.machines_per_rack
    best_tier = (jobs.gpus > per_machine).astype(np.int64) + (jobs.gpus > per_rack)
    ideal_s = np.array(states[0])
    return IterationTables(
        profile=best_tier,
        seconds=np.array([[state] * 3 for state in states]),
        compute_s=np.full(3, 0.5),
        ideal_s=ideal_s,
        best_tier=np.arange(3),
        sensitivity=ideal_s[NETWORK] / ideal_s - 1,
        step_s=np.array([step_s for step_s, _ in steps]),
        step_state=np.array([state for _, state in steps]),
    )


def tiers(simulator) -> list[int]:
    return simulator.records().tier.tolist()


def starts_s(simulator) -> list[float]:
    return simulator.records().start_s.tolist()


def finishes_s(simulator) -> list[float]:
    return simulator.records().finish_s.tolist()


def preemptions(simulator) -> list[int]:
    return simulator.records().preemptions.tolist()


# Offers.


def test_a_machine_offer_is_the_machine_with_fewest_free_gpus(simulate):
    # Free 4 4, then 2 4, then 1 4: the whole second machine is left for the third job.
    run = simulate((1, 2, 4), [(0, 2, 9), (0, 1, 9), (0, 4, 9)])
    assert tiers(run) == [MACHINE, MACHINE, MACHINE]
    assert starts_s(run) == [0, 0, 0]


def test_equal_machines_tie_to_the_lower_index(simulate):
    # Free 1 4 | 4 4: the second job takes machine 1, so the second rack is left whole.
    run = simulate((2, 2, 4), [(0, 3, 9), (0, 4, 9), (0, 8, 9)])
    assert tiers(run) == [MACHINE, MACHINE, RACK]


def test_a_rack_offer_is_the_rack_with_fewest_free_gpus(simulate):
    # Free 2 4 | 4 4: five GPUs come from the first rack (6 free, not 8), so the second is left whole.
    run = simulate((2, 2, 4), [(0, 2, 9), (0, 5, 9), (0, 8, 9)])
    assert tiers(run) == [MACHINE, RACK, RACK]


def test_in_a_rack_the_machines_with_most_free_gpus_give_first(simulate):
    # Free 3 4 4: six GPUs are 4 of machine 1 and 2 of machine 2. That leaves 3 0 2, no machine for four.
    run = simulate((1, 3, 4), [(0, 1, 9), (0, 6, 9), (0, 4, 9)])
    assert tiers(run) == [MACHINE, RACK, RACK]


def test_equal_racks_tie_to_the_lower_index(simulate):
    # At 1 s jobs 0 and 2 finish: free 3 3 | 2 4. At 2 s five GPUs fit both racks (6 free each); the first keeps machine
    # 3.
    fill = [(0, 3, 1), (0, 1, 9), (0, 3, 1), (0, 1, 9), (0, 2, 9)]
    run = simulate((2, 2, 4), [*fill, (2, 5, 9), (2, 4, 9)])
    assert tiers(run)[5:] == [RACK, MACHINE]


def test_a_network_offer_takes_the_racks_with_most_free_gpus(simulate):
    # Free 0 2 | 2 2 | 2 2: six GPUs come from the last two racks, 2 each of machines 2, 3 and 4.
    # That leaves 0 2 | 0 0 | 0 2, no rack for four.
    run = simulate((3, 2, 2), [(0, 2, 9), (0, 6, 9), (0, 4, 9)])
    assert tiers(run) == [MACHINE, NETWORK, NETWORK]


def test_a_network_offer_takes_the_machines_with_most_free_gpus_of_its_racks(simulate):
    # Free 1 4 | 4 4: ten GPUs need both racks: 4 of machine 1, 4 of machine 2, 2 of machine 3. That leaves 1 0 | 0 2.
    run = simulate((2, 2, 4), [(0, 3, 9), (0, 10, 9), (0, 3, 9)])
    assert tiers(run) == [MACHINE, NETWORK, NETWORK]


def test_a_gang_waits_while_too_few_gpus_are_free_and_smaller_jobs_pass_it(simulate):
    # Two of four GPUs are free until 10 s: the gang of three waits, the job behind it does not.
    run = simulate((1, 1, 4), [(0, 2, 10), (1, 3, 5), (2, 1, 8)])
    assert starts_s(run) == [0, 10, 2]
    assert finishes_s(run) == [10, 15, 10]


def test_a_worse_tier_costs_its_longer_iterations(simulate):
    # Free 1 1: two GPUs run at RACK, 10 iterations of 2 s, of which 1.5 s is communication.
    records = simulate((1, 2, 4), [(0, 3, 30), (0, 3, 30), (0, 2, 10)]).records()
    assert records.finish_s.tolist() == [30, 30, 20]
    assert records.tier_s[2].tolist() == [0, 20, 0]
    assert records.communication_s[2] == 15


def test_duration_is_the_run_time_at_the_best_tier_of_the_demand(simulate):
    # Eight GPUs never fit a machine of four: RACK is their best tier and 2 s their ideal iteration, so 5 iterations.
    records = simulate((1, 2, 4), [(0, 8, 10)]).records()
    assert records.finish_s.tolist() == [10]
    assert records.communication_s.tolist() == [7.5]


# Affinity and skew.


@pytest.mark.parametrize(("placement", "tier"), [(Placement.CONSOLIDATE, MACHINE), (Placement.AFFINITY, RACK)])
def test_affinity_prefers_an_idle_machine_to_one_of_another_demand(simulate, placement, tier):
    # With affinity the second job opens machine 1 (free 3 2, none for four); best fit puts it beside the first (free 1
    # 4).
    assert tiers(simulate((1, 2, 4), [(0, 1, 9), (0, 2, 9), (0, 4, 9)], placement=placement))[2] == tier


@pytest.mark.parametrize(("placement", "tier"), [(Placement.CONSOLIDATE, MACHINE), (Placement.AFFINITY, RACK)])
def test_affinity_puts_equal_demands_together(simulate, placement, tier):
    # Free 3 2 with affinity: the second 1 goes beside the first, not to the fuller machine. Best fit leaves free 0 4.
    assert tiers(simulate((1, 2, 4), [(0, 1, 9), (0, 2, 9), (1, 1, 9), (1, 3, 9)], placement=placement))[3] == tier


def test_affinity_prefers_a_machine_of_equal_demand_to_an_idle_one(simulate):
    # The second 1 goes beside the first: machine 2 stays whole.
    rows = [(0, 1, 9), (0, 2, 9), (1, 1, 9), (1, 4, 9)]
    assert tiers(simulate((1, 3, 4), rows, placement=Placement.AFFINITY))[3] == MACHINE


def test_of_machines_of_equal_demand_affinity_takes_the_one_with_most_free_gpus(simulate):
    # Five of demand 1 fill machine 0 and open machine 1; at 2 s free 1 3. The sixth makes it 1 2, no machine for three.
    rows = [(0, 1, 2), *[(0, 1, 9)] * 4, (3, 1, 9), (3, 3, 9)]
    assert tiers(simulate((1, 2, 4), rows, placement=Placement.AFFINITY))[6] == RACK


def test_a_machine_loses_its_affinity_when_it_is_idle_again(simulate):
    # Free 0 0 | 1 3, at 7 s 4 4 | 1 4: machine 3 has run a 1, but it is as idle as machine 0, which is the lower. That
    # leaves 3 4 | 1 4, no rack for eight.
    rows = [(0, 8, 6), (0, 3, 50), (0, 1, 5), (7, 1, 50), (7, 8, 50)]
    assert tiers(simulate((2, 2, 4), rows, placement=Placement.AFFINITY))[4] == NETWORK


def test_under_skew_a_plain_job_takes_scattered_gpus_although_a_machine_is_idle(simulate):
    # Free 1 4 | 4 4: fewest first, 1 of machine 0 and 1 of machine 1.
    # Then 0 3 | 4 4: five are 3 of machine 1 and 2 of machine 2.
    rows = [(0, 3, 30, PLAIN_MODEL), (0, 2, 10, PLAIN_MODEL), (0, 5, 10, PLAIN_MODEL)]
    run = simulate((2, 2, 4), rows, placement=Placement.SKEW, skew_limit=SKEW_LIMIT)
    assert tiers(run) == [MACHINE, RACK, NETWORK]
    assert finishes_s(run) == [30, 20, 20]  # five GPUs: 5 iterations of 2 s at best, 4 s across racks


def test_a_skew_equal_to_the_limit_is_not_above_it(simulate):
    # Free 1 4: not skewed, the second job takes one GPU of each machine.
    rows = [(0, 3, 30, PLAIN_MODEL), (0, 2, 10, SKEWED_MODEL)]
    limit = float(CATALOGUE.skew[SKEWED_MODEL])
    assert tiers(simulate((1, 2, 4), rows, placement=Placement.SKEW, skew_limit=limit)) == [MACHINE, RACK]


@pytest.mark.parametrize(("model", "start_s", "tier"), [(PLAIN_MODEL, 0, RACK), (SKEWED_MODEL, 20, MACHINE)])
def test_under_skew_a_skewed_job_waits_for_its_best_tier(simulate, model, start_s, tier):
    # Free 1 2: a machine for three comes free at 20 s. The timers are 0: they play no part.
    rows = [(0, 3, 20, PLAIN_MODEL), (0, 2, 30, SKEWED_MODEL), (0, 3, 10, model)]
    run = simulate((1, 2, 4), rows, placement=Placement.SKEW, skew_limit=SKEW_LIMIT)
    assert (starts_s(run)[2], tiers(run)[2]) == (start_s, tier)


# Delay timers.

SPLIT = [
    (0, 3, 100),
    (0, 3, 100),
    (0, 2, 10),
]  # free 1 1: the third job is offered RACK, or NETWORK if machines are racks


def test_a_job_holds_out_until_its_machine_timer_and_not_longer(simulate):
    run = simulate((1, 2, 4), SPLIT, machine_timer_s=30.0, rack_timer_s=50.0)
    assert (starts_s(run)[2], tiers(run)[2], finishes_s(run)[2]) == (30, RACK, 50)


def test_a_job_that_holds_out_takes_a_machine_as_soon_as_one_is_free(simulate):
    run = simulate((1, 2, 4), [(0, 3, 20), *SPLIT[1:]], machine_timer_s=30.0, rack_timer_s=50.0)
    assert (starts_s(run)[2], tiers(run)[2], finishes_s(run)[2]) == (20, MACHINE, 30)


def test_the_rack_timer_is_the_total_wait_for_a_network_offer(simulate):
    run = simulate((2, 1, 4), SPLIT, machine_timer_s=30.0, rack_timer_s=50.0)
    assert (starts_s(run)[2], tiers(run)[2], finishes_s(run)[2]) == (50, NETWORK, 90)


def test_an_infinite_timer_waits_for_the_best_tier(simulate):
    run = simulate((1, 2, 4), SPLIT, machine_timer_s=inf, rack_timer_s=inf)
    assert (starts_s(run)[2], tiers(run)[2]) == (100, MACHINE)


def test_a_job_does_not_wait_for_a_tier_too_small_for_it(simulate):
    # RACK is the best tier of five GPUs.
    assert starts_s(simulate((1, 2, 4), [(0, 5, 10)], machine_timer_s=inf, rack_timer_s=inf)) == [0]


def test_timers_set_from_outside_take_effect_at_once(simulate):
    run = simulate((1, 2, 4), SPLIT, until_s=17.0, machine_timer_s=inf, rack_timer_s=inf)
    assert isnan(starts_s(run)[2])
    run.set_timers([0.0], [0.0])
    run.advance(18.0)
    assert starts_s(run)[2] == 17


def test_a_class_is_demand_then_sensitivity_then_service(simulate):
    # Two GPUs: demand bin 0. NETWORK / MACHINE - 1 = 3 is above 2: sensitivity bin 1. No service yet: service bin 0.
    # So class (0 * 2 + 1) * 2 + 0 = 2 of 8.
    edges = {"demand_edges": (2,), "sensitivity_edges": (2.0,), "service_edges": (0.0,)}
    run = simulate((1, 2, 4), SPLIT, until_s=5.0, machine_timer_s=inf, rack_timer_s=inf, **edges)
    run.set_timers([0.0, 0.0, inf, 0.0, 0.0, 0.0, 0.0, 0.0], [inf] * 8)
    run.advance(6.0)
    assert isnan(starts_s(run)[2])
    run.set_timers([inf, inf, 0.0, inf, inf, inf, inf, inf], [inf] * 8)
    run.advance(7.0)
    assert starts_s(run)[2] == 6


# Order at one instant.


def test_completions_come_before_arrivals_at_the_same_second(simulate):
    assert starts_s(simulate((1, 1, 4), [(0, 4, 10), (10, 4, 5)])) == [0, 10]


def test_completions_come_before_a_timer_expiry_at_the_same_second(simulate):
    run = simulate((1, 2, 4), [(0, 3, 20), *SPLIT[1:]], machine_timer_s=20.0, rack_timer_s=20.0)
    assert (starts_s(run)[2], tiers(run)[2]) == (20, MACHINE)


def test_arrivals_come_before_a_round_at_the_same_second(simulate):
    # At 10 s the arrival (remaining 5 s) outranks the running job (remaining 90 s).
    run = simulate((1, 1, 4), [(0, 4, 100), (10, 4, 5)], order=Order.SRTF, preemption=True, round_s=10.0)
    assert starts_s(run) == [0, 10]


def test_a_network_step_comes_before_an_arrival_at_the_same_second(simulate):
    congestion = {"states": (NORMAL_S, CONGESTED_S), "steps": ((0.0, 0), (10.0, 1))}
    assert finishes_s(simulate((1, 1, 4), [(0, 4, 10), (10, 4, 5)], **congestion)) == [10, 20]


def test_the_clock_stands_where_the_advance_ended_but_not_after_the_last_completion(simulate):
    run = simulate((1, 1, 4), [(0, 4, 5)], until_s=3.0)
    assert run.now_s == 3
    run.advance(100.0)
    assert run.now_s == 5


def test_the_current_stretch_of_a_running_job_is_not_booked_yet(simulate):
    records = simulate((1, 1, 4), [(0, 4, 5), (4, 4, 5)], until_s=3.0).records()
    assert records.running_s.tolist() == [0, 0]
    assert records.start_s[0] == 0
    assert np.isnan([records.finish_s[0], records.start_s[1], records.finish_s[1]]).all()
    assert records.tier.tolist() == [MACHINE, -1]


# Priority.


def test_the_queue_is_served_in_the_order_of_the_policy(simulate):
    # One GPU; 0.5 s later the queue holds 3, 1 and 2 s of work.
    rows = [(0, 1, 1), (0.25, 1, 3), (0.5, 1, 1), (0.5, 1, 2)]
    assert starts_s(simulate((1, 1, 1), rows, order=Order.FIFO)) == [0, 1, 4, 5]
    assert starts_s(simulate((1, 1, 1), rows, order=Order.SRTF)) == [0, 4, 1, 2]


def test_equal_keys_are_served_by_index(simulate):
    # Nobody has run yet: all keys are 0 under LAS.
    assert starts_s(simulate((1, 1, 1), [(0, 1, 3), (0, 1, 2), (0, 1, 1)], order=Order.LAS)) == [0, 3, 5]


# Two gangs that need the whole machine; rounds every 10 s. The second is submitted at 5 s and takes over at 10 s, as it
# has not run yet. At 10 s the first has done 10 iterations and attained 40 GPU-seconds.
RIVALS = [(0, 4, 100), (5, 4, 100)]
ROUNDS = {"preemption": True, "round_s": 10.0}


def test_least_attained_service_alternates(simulate):
    # The second is at 40 at 20 s (not more than 40), at 80 at 30 s; the first is at 80 at 40 s, at 120 at 50 s.
    assert preemptions(simulate((1, 1, 4), RIVALS, order=Order.LAS, until_s=29.0, **ROUNDS)) == [1, 0]
    assert preemptions(simulate((1, 1, 4), RIVALS, order=Order.LAS, until_s=49.0, **ROUNDS)) == [1, 1]
    assert preemptions(simulate((1, 1, 4), RIVALS, order=Order.LAS, until_s=50.0, **ROUNDS)) == [2, 1]


def test_useful_service_does_not_count_restores(simulate):
    # With a restore of 12 s the first, back at 30 s, works from 42 s: at 50 s 18 iterations x 4 GPUs = 72 < 80, at 60 s
    # 112.
    fields = {"order": Order.USEFUL_SERVICE, "restore_s": 12.0, **ROUNDS}
    assert preemptions(simulate((1, 1, 4), RIVALS, until_s=59.0, **fields)) == [1, 1]
    assert preemptions(simulate((1, 1, 4), RIVALS, until_s=60.0, **fields)) == [2, 1]
    # Attained service counts them: 4 GPUs x 30 s = 120 > 80 at 50 s.
    fields["order"] = Order.LAS
    assert preemptions(simulate((1, 1, 4), RIVALS, until_s=50.0, **fields)) == [2, 1]


def test_network_sensitivity_lets_jobs_run_on_that_lost_nothing(simulate):
    # Both score 10 iterations x 1 s / 10 s = 1 after 10 s, so the second runs on to 110 s, the first from then 5 s + 90
    # s.
    run = simulate((1, 1, 4), RIVALS, order=Order.NETWORK_SENSITIVITY, restore_s=5.0, **ROUNDS)
    assert preemptions(run) == [1, 0]
    assert finishes_s(run) == [205, 110]


def test_network_sensitivity_takes_the_gpus_of_those_hurt_least(simulate):
    # From 5 s free 0 1 | 0 1: the pair of 6 s runs at NETWORK, 2 s of ideal time in 4 s. At 20 s it scores 1/2, jobs 0
    # and 2 score 1: job 5, which has not run, takes the GPU of the last of these, though the pair has attained more (28
    # > 20).
    rows = [(0, 1, 100), (0, 1, 5), (0, 1, 100), (0, 1, 5), (6, 2, 100), (17, 1, 100)]
    run = simulate((2, 2, 1), rows, order=Order.NETWORK_SENSITIVITY, until_s=20.0, **ROUNDS)
    assert tiers(run)[4] == NETWORK
    assert preemptions(run) == [0, 0, 1, 0, 0, 0]


def test_network_sensitivity_compares_with_the_best_tier_of_each_job(simulate):
    # The pair's best tier is RACK, 2 s an iteration: both score 1 at 10 s, and the last index gives up its GPUs.
    rows = [(0, 1, 100), (0, 2, 100), (5, 1, 100)]
    run = simulate((1, 3, 1), rows, order=Order.NETWORK_SENSITIVITY, until_s=10.0, **ROUNDS)
    assert preemptions(run) == [0, 1, 0]


def test_discretised_service_keeps_jobs_of_one_queue_in_the_order_of_their_start(simulate):
    # At 20 s both are past 20 GPU-seconds: key 1 each, and 1 < 1 is false. So the second runs to its end.
    run = simulate((1, 1, 4), RIVALS, order=Order.DISCRETISED_LAS, las_edges=(20.0,), **ROUNDS)
    assert preemptions(run) == [1, 0]
    assert finishes_s(run) == [200, 110]


def test_discretised_service_ties_go_to_the_first_start_not_to_the_index(simulate):
    # Job 2 starts at 2 s, job 1 takes over at 10 s (16 GPU-seconds are past the edge), job 3 at 20 s, to 25 s: then job
    # 2 goes first, for 92 s.
    rows = [(0, 2, 5), (1, 4, 100), (2, 2, 100), (15, 4, 5)]
    run = simulate((1, 1, 4), rows, order=Order.DISCRETISED_LAS, las_edges=(10.0,), **ROUNDS)
    assert finishes_s(run) == [5, 207, 117, 25]


def test_discretised_service_ties_go_to_the_first_start_not_to_the_longest_wait(simulate):
    # Job 0 runs 0-10 s, 1 10-20 s, 2 20-25 s, 0 25-30 s, 3 30-35 s. Then 0 goes before 1, though 1 has waited longer.
    rows = [*RIVALS, (15, 4, 5), (26, 4, 5)]
    run = simulate((1, 1, 4), rows, order=Order.DISCRETISED_LAS, las_edges=(20.0,), **ROUNDS)
    assert finishes_s(run) == [120, 210, 25, 35]


@pytest.mark.parametrize(("edge", "preempted"), [(40.0, 1), (40.5, 0)])
def test_an_edge_belongs_to_the_lower_queue(simulate, edge, preempted):
    # At 10 s the first has attained 40 GPU-seconds.
    run = simulate((1, 1, 4), RIVALS, order=Order.DISCRETISED_LAS, las_edges=(edge,), until_s=10.0, **ROUNDS)
    assert preemptions(run) == [preempted, 0]


@pytest.mark.parametrize(
    ("until_s", "expected"),
    [(29.0, [1, 0]), (30.0, [1, 1]), (69.0, [1, 1]), (70.0, [2, 1]), (149.0, [2, 1]), (150.0, [2, 2])],
)
def test_a_starving_job_is_promoted_and_its_service_forgiven(simulate, until_s, expected):
    # The first waits from 10 s on, with 10 s executed: promoted after 2 x 10 s, at 30 s, to key 0 < 1. At 40 s it has
    # 40 unforgiven GPU-seconds again, but the second, 20 s executed, is promoted only after 2 x 20 s, at 70 s. From
    # then on the first waits for twice the 40 s that are not forgiven, to 150 s.
    fields = {"order": Order.DISCRETISED_LAS, "las_edges": (20.0,), "promote_factor": 2.0, **ROUNDS}
    assert preemptions(simulate((1, 1, 4), [(0, 4, 1000), (5, 4, 1000)], until_s=until_s, **fields)) == expected


# Preemption.

SHORTEST_FIRST = {"order": Order.SRTF, "preemption": True, "round_s": 10.0}
LONG_THEN_SHORT = [(0, 4, 100), (12, 4, 5)]  # at 20 s 80 s remain of the first


def test_a_shorter_job_takes_the_gpus_at_the_next_round_and_the_victim_pays_a_restore(simulate):
    # 0-20 s and, after the second, 25-28 s restore and 28-108 s the other 80 iterations.
    records = simulate((1, 1, 4), LONG_THEN_SHORT, restore_s=3.0, **SHORTEST_FIRST).records()
    assert records.start_s.tolist() == [0, 20]
    assert records.finish_s.tolist() == [108, 25]
    assert records.preemptions.tolist() == [1, 0]
    assert records.running_s.tolist() == [103, 5]
    assert records.restore_s.tolist() == [3, 0]
    assert records.communication_s.tolist() == [50, 2.5]
    assert records.lost_s.tolist() == [0, 0]


def test_preemption_loses_the_unfinished_iteration(simulate):
    # 12.5 iterations of 8 s; at 20 s 2.5 are done, 0.5 is lost. From 28 s on 10.5 are left: 84 s.
    records = simulate(
        (1, 1, 4), LONG_THEN_SHORT, restore_s=3.0, states=((8.0, 16.0, 32.0),), **SHORTEST_FIRST
    ).records()
    assert records.lost_s.tolist() == [4, 0]
    assert records.finish_s.tolist() == [112, 25]


def test_a_restore_cut_short_counts_only_as_far_as_it_went(simulate):
    # Back at 25 s with a restore of 30 s, the first is preempted again at 40 s; back at 45 s, it restores to 75 s, then
    # 80 s.
    records = simulate((1, 1, 4), [*LONG_THEN_SHORT, (31, 4, 5)], restore_s=30.0, **SHORTEST_FIRST).records()
    assert records.restore_s.tolist() == [45, 0, 0]
    assert records.finish_s.tolist() == [155, 25, 45]


@pytest.mark.parametrize(("duration_s", "start_s"), [(39, 20), (40, 100)])
def test_the_margin_must_be_beaten(simulate, duration_s, start_s):
    # At 20 s half of the 80 s that remain is 40 s, and it shrinks from then on.
    rows = [(0, 4, 100), (12, 4, duration_s)]
    assert starts_s(simulate((1, 1, 4), rows, preemption_margin=0.5, **SHORTEST_FIRST))[1] == start_s


def test_a_margin_set_from_outside_rules_the_next_round(simulate):
    run = simulate((1, 1, 4), LONG_THEN_SHORT, until_s=15.0, **SHORTEST_FIRST)
    run.set_preemption_margin(1.0)
    run.advance(35.0)
    run.set_preemption_margin(0.0)
    run.advance(inf)
    assert starts_s(run)[1] == 40


@pytest.mark.parametrize(("quantum_s", "start_s"), [(20.0, 20), (25.0, 30), (inf, 100)])
def test_a_job_is_protected_until_it_has_held_its_gpus_for_the_quantum(simulate, quantum_s, start_s):
    assert starts_s(simulate((1, 1, 4), LONG_THEN_SHORT, **SHORTEST_FIRST | {"quantum_s": quantum_s}))[1] == start_s


# Two pairs on each machine, one to run until 100 s, one until 50 s. At 10 s the last job (10 s) claims the long pairs,
# two GPUs on each machine, and is offered RACK.
PAIRS = [(0, 2, 100), (1, 2, 49), (2, 2, 98), (3, 2, 47), (4, 4, 10)]


def test_nobody_is_preempted_for_a_job_that_holds_out(simulate):
    # At 50 s the short ones finish (free 2 2), at 100 s the long ones: only then is there a machine for four.
    run = simulate((1, 2, 4), PAIRS, machine_timer_s=inf, rack_timer_s=inf, **SHORTEST_FIRST)
    assert preemptions(run) == [0, 0, 0, 0, 0]
    assert finishes_s(run) == [100, 50, 100, 50, 110]


def test_claimed_jobs_are_preempted_for_a_job_that_accepts(simulate):
    # It runs 10-30 s at RACK; then the long jobs restart for their other 90 s.
    run = simulate((1, 2, 4), PAIRS, **SHORTEST_FIRST)
    assert preemptions(run) == [1, 0, 1, 0, 0]
    assert finishes_s(run) == [120, 50, 120, 50, 30]


def test_a_claimed_job_whose_gpus_were_not_needed_goes_on_undisturbed(simulate):
    # At 10 s 90 s remain of job 1 (2 GPUs) and 40 s of job 0 (4 GPUs): both are claimed, as 2 < 3, for job 3. Only
    # machine 0 holds three GPUs, so job 1 goes on. Job 0 is back at 15 s, works from 18 s on, 40 s more.
    rows = [(0, 4, 50), (1, 2, 99), (2, 2, 18), (3, 3, 5)]
    run = simulate((1, 2, 4), rows, restore_s=3.0, machine_timer_s=inf, rack_timer_s=inf, **SHORTEST_FIRST)
    assert preemptions(run) == [1, 0, 0, 0]
    assert finishes_s(run) == [58, 100, 20, 15]


def test_a_job_that_cannot_claim_enough_returns_its_claims_and_ends_the_walk(simulate):
    # At 10 s job 2 (45 s) outranks job 0 (90 s) but not job 1 (40 s): two GPUs do not do. Job 3 (50 s) could do with
    # those of job 0, but stands behind. At 50 s job 1 finishes, and 45 < 50 claims job 0.
    rows = [(0, 2, 100), (1, 2, 49), (2, 4, 45), (3, 2, 50)]
    assert preemptions(simulate((1, 1, 4), rows, until_s=49.0, **SHORTEST_FIRST)) == [0, 0, 0, 0]
    run = simulate((1, 1, 4), rows, until_s=50.0, **SHORTEST_FIRST)
    assert preemptions(run) == [1, 0, 0, 0]
    assert starts_s(run)[2] == 50


# At 10 s job 3 (40 s) takes the machine of job 0 (90 s) and keeps it to 50 s. At 12 s free 1 2: job 0 is offered RACK.
BUMPED = [(0, 3, 100), (1, 2, 59), (2, 2, 10), (5, 3, 40)]


def test_a_preempted_job_waits_anew_for_its_timer(simulate):
    # From 10 + 27 s on it does its other 90 iterations in 2 s each.
    run = simulate((1, 2, 4), BUMPED, machine_timer_s=27.0, rack_timer_s=27.0, **SHORTEST_FIRST)
    assert preemptions(run) == [1, 0, 0, 0]
    assert finishes_s(run)[0] == 217


@pytest.mark.parametrize(("timers_s", "finish_s"), [([inf, 27.0], 217), ([27.0, inf], 140)])
def test_a_preempted_job_has_the_timers_of_its_attained_service(simulate, timers_s, finish_s):
    # Attained service 30 is above the edge: class 1. With an infinite timer it waits for machine 0, 50-140 s.
    run = simulate((1, 2, 4), BUMPED, until_s=1.0, service_edges=(29.0,), **SHORTEST_FIRST)
    run.set_timers(timers_s, timers_s)
    run.advance(inf)
    assert finishes_s(run)[0] == finish_s


# Placement upgrade.

# Two GPUs at RACK (free 1 1) from 0 s on, 2 s an iteration, so that 40 s would be its end; from 15 s on machine 1 has
# three.
MISPLACED = [(0, 3, 100), (0, 3, 15), (0, 2, 20)]
UPGRADE = {"upgrade": True, "round_s": 10.0}


def test_a_job_moves_to_a_better_tier_when_it_then_finishes_earlier(simulate):
    # At 20 s 10 iterations are left: 5 s restore + 10 s < 20 s.
    records = simulate((1, 2, 4), MISPLACED, restore_s=5.0, **UPGRADE).records()
    assert records.moves.tolist() == [0, 0, 1]
    assert records.preemptions.tolist() == [0, 0, 0]
    assert records.finish_s.tolist() == [100, 15, 35]
    assert records.tier.tolist() == [MACHINE, MACHINE, MACHINE]
    assert records.tier_s[2].tolist() == [15, 20, 0]
    assert records.restore_s[2] == 5
    assert records.communication_s[2] == 20 * 0.75 + 10 * 0.5


def test_a_job_stays_when_moving_gains_nothing(simulate):
    # 10 s restore + 10 s is not less than 20 s.
    records = simulate((1, 2, 4), MISPLACED, restore_s=10.0, **UPGRADE).records()
    assert records.moves.tolist() == [0, 0, 0]
    assert records.finish_s[2] == 40


def test_a_move_loses_the_unfinished_iteration(simulate):
    # Started at 1 s, it has done 9.5 iterations at 20 s; half of one, 1 s, is lost and 11 are left from 25 s on.
    records = simulate((1, 2, 4), [*MISPLACED[:2], (1, 2, 20)], restore_s=5.0, **UPGRADE).records()
    assert records.lost_s[2] == 1
    assert records.finish_s[2] == 36


def test_the_gain_of_a_move_counts_the_iteration_that_it_loses(simulate):
    # 10.25 s restore + 11 s is not less than 21 s; the 10.5 iterations not done would be.
    records = simulate((1, 2, 4), [*MISPLACED[:2], (1, 2, 20)], restore_s=10.25, **UPGRADE).records()
    assert records.moves.tolist() == [0, 0, 0]
    assert records.finish_s[2] == 41


def test_jobs_move_in_the_order_of_their_priority(simulate):
    # Pairs at RACK on machines 0, 1 (job 4) and 2, 3 (job 5). At 20 s machine 1 has room for one more pair: for job 5,
    # of which 12.5 s remain, not for job 4 (32 s).
    rows = [(0, 3, 100), (1, 3, 14), (2, 3, 100), (3, 3, 100), (4, 2, 40), (5, 2, 20)]
    records = simulate((1, 4, 4), rows, order=Order.SRTF, until_s=20.0, **UPGRADE).records()
    assert records.moves.tolist() == [0, 0, 0, 0, 0, 1]


def test_a_pass_follows_a_move(simulate):
    # Job 4 runs on machines 0 and 1. At 20 s the best fit for it is machine 2 (free 2; machine 1 has 3), and machine 1
    # is whole for job 5, which would hold out for ever.
    rows = [(0, 3, 100), (0, 3, 15), (0, 2, 100), (0, 2, 12), (0, 2, 20), (16, 4, 10)]
    run = simulate((1, 3, 4), rows, until_s=0.0, demand_edges=(2,), **UPGRADE)
    run.set_timers([0.0, inf], [0.0, inf])
    run.advance(29.0)
    assert run.records().moves.tolist() == [0, 0, 0, 0, 1, 0]
    assert starts_s(run)[5] == 20


def test_a_job_that_moves_to_a_machine_where_it_is_alone_leaves_its_affinity(simulate):
    # The pair on machines 0 and 1, opened by threes, moves to machine 1 at 20 s; this is never idle. So at 26 s the
    # next pair finds no affinity 2 and opens machine 2 (free 1 2 2, none for four).
    rows = [(0, 3, 100), (0, 3, 15), (0, 4, 25), (0, 2, 20), (26, 2, 9), (26, 4, 9)]
    run = simulate((1, 3, 4), rows, restore_s=5.0, placement=Placement.AFFINITY, **UPGRADE)
    assert run.records().moves.tolist() == [0, 0, 0, 1, 0, 0]
    assert tiers(run)[5] == RACK


@pytest.mark.parametrize(("quantum_s", "finish_s"), [(20.0, 30), (25.0, 35), (inf, 40)])
def test_a_protected_job_does_not_move(simulate, quantum_s, finish_s):
    # A move at 20 s leaves 10 iterations of 1 s, one at 30 s leaves 5.
    assert finishes_s(simulate((1, 2, 4), MISPLACED, quantum_s=quantum_s, **UPGRADE))[2] == finish_s


def test_jobs_under_skew_never_move(simulate):
    # One GPU on each machine, though machine 1 has three free.
    rows = [(0, 3, 100, PLAIN_MODEL), (0, 2, 20, PLAIN_MODEL)]
    run = simulate((1, 2, 4), rows, placement=Placement.SKEW, skew_limit=SKEW_LIMIT, **UPGRADE)
    assert finishes_s(run) == [100, 40]
    assert tiers(run) == [MACHINE, RACK]


# Network steps.


def test_a_network_step_changes_the_speed_of_what_is_left(simulate):
    # 10 iterations of 1 s, then 20 of 2 s; 0.5 s and 1.5 s of each are communication.
    congestion = {"states": (NORMAL_S, CONGESTED_S), "steps": ((0.0, 0), (10.0, 1))}
    records = simulate((1, 1, 4), [(0, 4, 30)], **congestion).records()
    assert records.finish_s.tolist() == [50]
    assert records.communication_s.tolist() == [35]


def test_a_network_step_during_a_restore_leaves_its_end(simulate):
    # The first restores 25-28 s; its 80 iterations take 2 s each.
    congestion = {"states": (NORMAL_S, CONGESTED_S), "steps": ((0.0, 0), (26.0, 1))}
    run = simulate((1, 1, 4), LONG_THEN_SHORT, restore_s=3.0, **congestion, **SHORTEST_FIRST)
    assert finishes_s(run) == [188, 25]


def test_a_network_step_does_not_touch_a_job_whose_speed_it_leaves(simulate):
    # Booked at the step, rounding would show in the finish.
    iteration_s, step_s, iterations = 0.7, 0.9, 4.9 / 0.7
    untouched_s = iterations * iteration_s
    assert step_s + (iterations - step_s / iteration_s) * iteration_s != untouched_s
    states = ((iteration_s, 1.4, 2.8), (iteration_s, 1.4, 5.6))
    assert finishes_s(simulate((1, 1, 4), [(0, 4, 4.9)], states=states, steps=((0.0, 0), (step_s, 1)))) == [untouched_s]


# Auto-tuner.

# Starvations at MACHINE: 0 and 0 at 0 s, 10 at 14 s. From 21 s on the last job is offered RACK (free 1 1), so it starts
# at 21 s + the timer.
STARVING = [(0, 3, 100), (0, 3, 14), (4, 3, 100), (21, 2, 10)]
TUNER = {"auto_tuner": True, "round_s": 10.0, "machine_timer_s": 7.0, "rack_timer_s": 7.0}


@pytest.mark.parametrize(
    ("window", "std_factor", "timer_s"),
    [(2, 0.0, 5), (2, 1.0, 10), (2, 2.0, 15), (2, -2.0, 0), (1, 2.0, 10), (64, 0.0, 10 / 3)],
)
def test_the_timer_is_mean_and_deviation_of_the_last_starvations(simulate, window, std_factor, timer_s):
    # Of 0 and 10 the mean is 5 and the deviation 5; of 10 alone 10 and 0; of 0, 0 and 10 the mean is 10 / 3.
    run = simulate((1, 2, 4), STARVING, tuner_window=window, tuner_std_factor=std_factor, **TUNER)
    assert starts_s(run)[3] == 21 + timer_s
    assert tiers(run)[3] == RACK


@pytest.mark.parametrize(("max_age_s", "start_s"), [(15.0, 30), (16.0, 31)])
def test_old_starvations_are_forgotten_and_an_empty_window_means_the_policys_timer(simulate, max_age_s, start_s):
    # At 20 s only the one of 14 s is left: timer 10. At 30 s it is 16 s old: if that is too old the timer is 7, past
    # since 28 s.
    assert starts_s(simulate((1, 2, 4), STARVING, tuner_max_age_s=max_age_s, **TUNER))[3] == start_s


def test_a_tuned_rack_timer_is_no_less_than_the_machine_timer(simulate):
    # Nobody started at RACK, so its timer would be 7 s; the machine timer is 5 + 5.
    run = simulate((2, 1, 4), STARVING, tuner_window=2, **TUNER)
    assert (starts_s(run)[3], tiers(run)[3]) == (31, NETWORK)


# Any scenario.


def play(scenario: Scenario, verify: bool = False) -> ReferenceSimulator:
    simulator = ReferenceSimulator(*scenario[:2], scenario.policy, scenario.tables, scenario.restore_s, scenario.skew)
    for timers_s, margin, until_s in scenario.actions:
        if timers_s is not None:
            simulator.set_timers(*timers_s)
        if margin is not None:
            simulator.set_preemption_margin(margin)
        simulator.advance(until_s)
        if verify:
            simulator.verify()
    return simulator


@given(scenarios())
def test_the_invariants_hold_after_every_action(scenario):
    records = play(scenario, verify=True).records()
    started, finished = ~np.isnan(records.start_s), ~np.isnan(records.finish_s)
    assert not (finished & ~started).any()
    assert (records.start_s[started] >= records.submit_s[started]).all()
    assert (records.restore_s + records.lost_s <= records.running_s * (1 + 1e-9)).all()


@given(scenarios(max_jobs=12), st.integers(2, 7))
def test_stopping_on_the_way_changes_nothing(scenario, stops):
    last = scenario.actions[-1]
    first_s = scenario.actions[-2].until_s if len(scenario.actions) > 1 else 0.0
    stops_s = np.linspace(first_s, last.until_s, stops + 1)[1:-1].tolist()
    stopping = [*scenario.actions[:-1], *[last._replace(until_s=stop_s) for stop_s in stops_s], last]
    straight, stopped = play(scenario).records(), play(scenario._replace(actions=stopping)).records()
    for name, column in straight._asdict().items():
        np.testing.assert_array_equal(getattr(stopped, name), column, err_msg=name)
