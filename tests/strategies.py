"""Hypothesis strategies: small clusters, short traces, every field of a policy, actions from outside.

Times come mostly from a few values, so that events coincide and ties are common; small integers are mixed with floats
that do not add up exactly. A `Scenario` is bounded by its last action: preemption may keep jobs from ever finishing.
"""

from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobTable
from ddl_gym.models import CATALOGUE
from ddl_gym.network import IterationTables
from ddl_gym.policies import Order, Placement, Policy

ROUNDS = 60  # a scenario lasts no longer
INTEGERS_S = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
AWKWARD_S = (0.1, 0.3, 1 / 3, 0.7, 1.1, 4.9, 29.999999999999996, 1e-17)
durations_s = st.one_of(
    st.sampled_from((*INTEGERS_S, *AWKWARD_S)), st.sampled_from((10.0, 30.0, 60.0, 100 / 3)), st.floats(0.01, 60.0)
)
gaps_s = st.sampled_from((*(0.0,) * 8, *INTEGERS_S, *AWKWARD_S))
waits_s = st.sampled_from((0.0, inf, *INTEGERS_S, *AWKWARD_S))
# Compute and communication (at each tier) seconds of an iteration.
PROFILES_S = tuple(
    product(
        (0.01, 0.1, 1 / 3, 0.5, 1.0, 7.0),
        ((0.0, 0.0, 0.0), (0.0, 0.05, 0.7), (0.1, 0.3, 2.0), (0.0, 0.0, 1.1), (0.7, 1.4, 2.1), (0.2, 3.0, 3.0)),
    )
)
MODELS = (0, 7, len(CATALOGUE.name) - 1)  # rows of the catalogue, of different skew
fractions = st.sampled_from((0.0, 0.1, 1 / 3, 0.5, 1.0))

clusters = st.builds(
    ClusterSpec,
    racks=st.sampled_from((1, 2, 3)),
    machines_per_rack=st.sampled_from((1, 2, 3, 4)),
    gpus_per_machine=st.integers(1, 8),
)


def job_table(
    submit_s: list[float], gpus: list[int], duration_s: list[float], model: list[int] | None = None
) -> JobTable:
    """A trace of jobs named j0, j1, ...; submit_s must ascend."""
    return JobTable(
        job_id=np.array([f"j{index}" for index in range(len(submit_s))]),
        submit_s=np.array(submit_s, np.float64),
        gpus=np.array(gpus, np.int64),
        duration_s=np.array(duration_s, np.float64),
        model=np.array(model if model is not None else [0] * len(submit_s), np.int64),
        user=np.array([""] * len(submit_s)),
    )


@st.composite
def job_tables(draw: st.DrawFn, cluster: ClusterSpec, max_jobs: int = 25) -> JobTable:
    """Traces that the cluster can hold: small gangs mostly, some up to the whole cluster."""
    largest = st.sampled_from(
        (cluster.gpus_per_machine, cluster.gpus_per_machine + 1, cluster.gpus_per_rack, cluster.gpus)
    )
    demands = st.integers(1, min(4, cluster.gpus)) | st.integers(1, min(draw(largest), cluster.gpus))
    size = draw(st.integers(1, max_jobs))
    models = st.sampled_from(MODELS)
    rows = draw(st.lists(st.tuples(gaps_s, demands, durations_s, models), min_size=size, max_size=size))
    gap_s, gpus, duration_s, model = (list(column) for column in zip(*rows, strict=True))
    gap_s[0] = 0.0
    return job_table(np.cumsum(gap_s).tolist(), gpus, duration_s, model)


@st.composite
def iteration_tables(draw: st.DrawFn, cluster: ClusterSpec, jobs: JobTable) -> IterationTables:
    """Any times that grow with the tier and with congestion, +inf at a tier too small; a profile is (demand, model)."""
    pairs = sorted(set(zip(jobs.gpus.tolist(), jobs.model.tolist(), strict=True)))
    profile = [pairs.index(pair) for pair in zip(jobs.gpus.tolist(), jobs.model.tolist(), strict=True)]
    factors = draw(st.lists(st.sampled_from((1.0, 1.5, 3.0, 10 / 3)), min_size=1, max_size=3))
    best_tier = cluster.best_tier([gpus for gpus, _ in pairs])
    profiles = [draw(st.sampled_from(PROFILES_S)) for _ in pairs]
    compute_s = np.array([compute for compute, _ in profiles])
    communication_s = np.array([communication for _, communication in profiles])

    seconds = np.array([compute_s[:, None] + communication_s * factor for factor in factors])
    ideal_s = np.array([c + x[tier] for c, x, tier in zip(compute_s, communication_s, best_tier, strict=True)])
    network_s = compute_s + communication_s[:, 2]
    for row, tier in enumerate(best_tier):
        seconds[:, row, :tier] = inf
    steps = draw(st.lists(st.tuples(st.sampled_from(INTEGERS_S + AWKWARD_S[:-1]), st.integers(0, 2)), max_size=4))
    return IterationTables(
        profile=np.array(profile, np.int64),
        seconds=seconds,
        compute_s=compute_s,
        ideal_s=ideal_s,
        best_tier=best_tier,
        sensitivity=network_s / ideal_s - 1.0,
        step_s=np.cumsum([0.0] + [gap_s for gap_s, _ in steps]),
        step_state=np.array([0] + [state % len(factors) for _, state in steps], np.int64),
    )


def edges(*values: float) -> st.SearchStrategy[tuple[float, ...]]:
    """Some of these values, ascending."""
    return st.sets(st.sampled_from(values), max_size=3).map(lambda chosen: tuple(sorted(chosen)))


def timers_s(classes: int) -> st.SearchStrategy[tuple[list[float], list[float]]]:
    """Machine and rack timers of each class, (C,) each, no rack timer less than its machine timer."""
    pairs = st.lists(st.tuples(waits_s, waits_s).map(sorted), min_size=1, max_size=3)
    return pairs.map(lambda few: tuple([few[c % len(few)][tier] for c in range(classes)] for tier in (0, 1)))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Every combination of parts."""
    machine_timer_s, rack_timer_s = sorted(draw(st.just((0.0, 0.0)) | st.tuples(waits_s, waits_s)))
    return Policy(
        order=draw(st.sampled_from(Order)),
        placement=draw(st.sampled_from(Placement)),
        machine_timer_s=machine_timer_s,
        rack_timer_s=rack_timer_s,
        auto_tuner=draw(st.booleans()),
        tuner_window=draw(st.sampled_from((1, 2, 3, 64))),
        tuner_max_age_s=draw(waits_s),
        tuner_std_factor=draw(st.sampled_from((1.0, 0.0, 2.5, 1 / 3, -1.0))),
        demand_edges=draw(st.one_of(st.just((1, 2, 4, 8, 16, 32)), edges(1, 2, 3, 5, 8))),
        sensitivity_edges=draw(edges(0.0, 0.1, 1.0)),
        service_edges=draw(edges(0.0, 2.0, 10.0, 33.3)),
        round_s=draw(st.sampled_from((5.0, 1.0, 2.0, 10.0, 0.7, 10 / 3))),
        preemption=draw(st.booleans()),
        preemption_margin=draw(st.just(0.0) | fractions),
        upgrade=draw(st.booleans()),
        quantum_s=draw(st.sampled_from((0.0, 0.0, 1.0, 4.9, 5.0, inf))),
        las_edges=draw(edges(1.0, 5.0, 20.0, 33.3)),
        promote_factor=draw(st.sampled_from((inf, 0.0, 0.3, 1.0, 3.0))),
        skew_limit=draw(st.sampled_from((-1.0, *CATALOGUE.skew[list(MODELS)].tolist(), 1.0))),
    )


class Action(NamedTuple):
    """Set timers (machine, rack; (C,) each) and the margin, None to leave them, then advance to `until_s`."""

    timers_s: tuple[list[float], list[float]] | None
    margin: float | None
    until_s: float


class Scenario(NamedTuple):
    """All that decides a schedule; `skew` (J,) is the catalogue's for each job's model."""

    cluster: ClusterSpec
    jobs: JobTable
    skew: np.ndarray
    policy: Policy
    tables: IterationTables
    restore_s: float
    actions: list[Action]


@st.composite
def action_lists(draw: st.DrawFn, policy: Policy) -> list[Action]:
    """A few decisions, at rounds and between them, the last advance as far as a scenario goes.

    A policy that tunes its own timers takes none from outside.
    """
    timers = st.none() if policy.auto_tuner else st.none() | timers_s(policy.classes)
    gaps = st.sampled_from((0.0, policy.round_s, 5 * policy.round_s, 1.0, 0.3))
    rows = draw(st.lists(st.tuples(timers, st.none() | fractions, gaps), max_size=4))
    ends_s = np.cumsum([gap_s for _, _, gap_s in rows]).tolist()
    actions = [Action(timers, margin, until_s) for (timers, margin, _), until_s in zip(rows, ends_s, strict=True)]
    return [*actions, Action(None, None, ROUNDS * policy.round_s)]


@st.composite
def scenarios(draw: st.DrawFn, max_jobs: int = 25) -> Scenario:
    """Everything at once: what the kernel and the reference are compared on."""
    cluster, policy = draw(clusters), draw(policies())
    jobs = draw(job_tables(cluster, max_jobs))
    tables = draw(iteration_tables(cluster, jobs))
    restore_s = draw(st.sampled_from((0.0, 1.0, 0.3, 7.5)))
    return Scenario(cluster, jobs, CATALOGUE.skew[jobs.model], policy, tables, restore_s, draw(action_lists(policy)))
