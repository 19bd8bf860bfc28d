"""How is the kernel's memory laid out, and what does it hold at time 0?

A `World` of `allocate(sizes, n)` has a leading dimension n: many simulators side by side, of which `world_row(world, i)` is one. Arrays
may be longer than a run needs; `fill` says in RULES how much of them counts.
"""

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddl_gym import kernel
from ddl_gym.cluster import NONE, ClusterSpec
from ddl_gym.jobs import JobTable
from ddl_gym.models import CATALOGUE
from ddl_gym.network import IterationTables
from ddl_gym.policies import Order, Placement, Policy


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Lengths of the World's arrays."""

    jobs: int
    buckets: int
    positions: int  # sum of the buckets' capacities
    profiles: int
    network_states: int
    network_steps: int
    classes: int
    window: int
    racks: int
    machines_per_rack: int
    gpus_per_machine: int
    las_edges: int
    service_edges: int
    log_rows: int = 0

    @classmethod
    def of(
        cls, cluster: ClusterSpec, jobs: JobTable, policy: Policy, tables: IterationTables, log_rows: int = 0
    ) -> "Sizes":
        """Just enough for one run."""
        capacity = _buckets(jobs, policy, tables)["capacity"]
        return cls(
            jobs=jobs.jobs,
            buckets=len(capacity),
            positions=int(capacity.sum()),
            profiles=len(tables.ideal_s),
            network_states=len(tables.seconds),
            network_steps=len(tables.step_s),
            classes=policy.classes,
            window=policy.tuner_window,
            racks=cluster.racks,
            machines_per_rack=cluster.machines_per_rack,
            gpus_per_machine=cluster.gpus_per_machine,
            las_edges=len(policy.las_edges),
            service_edges=len(policy.service_edges),
            log_rows=log_rows,
        )


def allocate(sizes: Sizes, rows: int) -> kernel.World:
    """Memory for so many simulators, without content."""

    def records(dtype: np.dtype[Any], *shape: int) -> NDArray[Any]:
        return np.zeros((rows, *shape), dtype)

    def numbers(*shape: int) -> NDArray[np.float64]:
        return np.zeros((rows, *shape))

    def counts(*shape: int) -> NDArray[np.int64]:
        return np.zeros((rows, *shape), np.int64)

    machines = sizes.racks * sizes.machines_per_rack
    gpus_per_rack = sizes.machines_per_rack * sizes.gpus_per_machine
    gpus = sizes.racks * gpus_per_rack
    return kernel.World(
        rules=records(kernel.RULES, 1),
        clock=records(kernel.CLOCK, 1),
        jobs=records(kernel.JOB, sizes.jobs),
        buckets=records(kernel.BUCKET, sizes.buckets),
        nodes=records(kernel.NODE, 2 * sizes.positions),
        enqueue_s=numbers(sizes.positions),
        profiles=records(kernel.PROFILE, sizes.profiles),
        iteration_s=numbers(sizes.network_states, sizes.profiles, 3),
        step_s=numbers(sizes.network_steps),
        step_state=counts(sizes.network_steps),
        timers=records(kernel.TIMER, sizes.classes, 2),
        windows=records(kernel.ENTRY, sizes.classes, 2, sizes.window),
        machines=records(kernel.MACHINE_ROW, machines),
        racks=records(kernel.RACK_ROW, sizes.racks),
        rack_machines=counts(sizes.racks, sizes.gpus_per_machine + 1),
        machine_counts=counts(sizes.gpus_per_machine + 1),
        rack_counts=counts(gpus_per_rack + 1),
        # Twice the GPUs: claimed jobs keep their pieces and their place in the heap while claimants start.
        pieces=records(kernel.PIECE, 2 * gpus),
        heap=counts(min(sizes.jobs, 2 * gpus)),
        tier_s=numbers(sizes.jobs, 3),
        las_edges=numbers(sizes.las_edges),
        service_edges=numbers(sizes.service_edges),
        pool=counts(min(sizes.jobs, gpus)),
        claimants=counts(min(sizes.jobs, gpus)),
        claimed=counts(min(sizes.jobs, gpus)),
        log=records(kernel.LOG, sizes.log_rows),
    )


def world_row(world: kernel.World, index: int) -> kernel.World:
    """One simulator of many, sharing their memory."""
    return kernel.World(*(column[index] for column in world))


def fill(
    w: kernel.World, cluster: ClusterSpec, jobs: JobTable, policy: Policy, tables: IterationTables, restore_s: float
) -> None:
    """Write time 0 of a run into one World row; arguments are valid and fit the row."""
    rules = w.rules[0]
    for name in ("order", "placement", "preemption", "upgrade", "auto_tuner", "round_s", "quantum_s", "promote_factor"):
        rules[name] = getattr(policy, name)
    for name in ("racks", "machines_per_rack", "gpus_per_machine", "gpus_per_rack", "gpus"):
        rules[name] = getattr(cluster, name)
    rules.tuner_std_factor, rules.tuner_max_age_s = policy.tuner_std_factor, policy.tuner_max_age_s
    promotes = policy.order == Order.DISCRETISED_LAS and policy.promote_factor < inf
    rules.has_rounds = policy.preemption or policy.upgrade or policy.auto_tuner or promotes
    rules.jobs, rules.restore_s, rules.asks = jobs.jobs, restore_s, 0
    rules.steps, rules.service_bins = len(tables.step_s), len(policy.service_edges) + 1

    table = _buckets(jobs, policy, tables)
    count = len(table["capacity"])
    rules.buckets = count
    buckets = w.buckets[:count]
    for name in ("gpus", "best_tier", "acceptance", "timer_class", "capacity"):
        buckets[name] = table[name]
    buckets["slot_start"] = np.cumsum(table["capacity"]) - table["capacity"]
    buckets["tree_start"] = 2 * buckets["slot_start"]
    buckets["cached_offer"] = NONE
    for name in ("tail", "live", "rack_ready", "network_ready"):
        buckets[name] = 0
    w.nodes["job"] = NONE

    rows = w.jobs[: jobs.jobs]
    rows.view(np.uint8)[...] = 0
    rows["submit_s"], rows["gpus"], rows["profile"], rows["group"] = (
        jobs.submit_s,
        jobs.gpus,
        tables.profile,
        table["group"],
    )
    rows["iterations"] = jobs.duration_s / tables.ideal_s[tables.profile]
    rows["first_start_s"], rows["best_tier"] = inf, tables.best_tier[tables.profile]
    for name in ("tier", "bucket", "slot", "heap_slot", "piece", "held_offer"):
        rows[name] = NONE
    w.tier_s[...] = 0.0

    profiles, states = len(tables.ideal_s), len(tables.seconds)
    w.profiles["compute_s"][:profiles], w.profiles["ideal_s"][:profiles] = tables.compute_s, tables.ideal_s
    w.iteration_s[:states, :profiles] = tables.seconds
    w.step_s[: rules.steps], w.step_state[: rules.steps] = tables.step_s, tables.step_state
    w.las_edges[...], w.service_edges[...] = policy.las_edges, policy.service_edges
    for name in ("timer_s", "tuned_s", "default_s"):
        w.timers[name] = (policy.machine_timer_s, policy.rack_timer_s)
    w.timers["factor"] = 1.0
    for name in ("offset_s", "mean_s", "deviation_s", "head", "entries", "changed"):
        w.timers[name] = 0

    per_machine, per_rack = cluster.gpus_per_machine, cluster.gpus_per_rack
    w.machines["free"], w.machines["affinity"] = per_machine, NONE
    w.racks["free"], w.racks["chosen"] = per_rack, 0
    w.rack_machines[...], w.machine_counts[...], w.rack_counts[...] = 0, 0, 0
    w.rack_machines[:, per_machine] = cluster.machines_per_rack
    w.machine_counts[per_machine], w.rack_counts[per_rack] = cluster.machines, cluster.racks
    w.pieces["next_piece"] = np.append(np.arange(1, len(w.pieces)), NONE)

    w.clock.view(np.uint8)[...] = 0
    clock = w.clock[0]
    clock.preemption_margin, clock.next_expiry_s, clock.round_index = policy.preemption_margin, inf, 1
    clock.next_step, clock.network_state, clock.asked_job = 1, tables.step_state[0], NONE
    clock.free, clock.machine_top, clock.rack_top = cluster.gpus, per_machine, per_rack


def _buckets(jobs: JobTable, policy: Policy, tables: IterationTables) -> dict[str, NDArray[np.int64]]:
    """Columns of the B buckets, and `group` (J,): jobs of equal demand, sensitivity bin and acceptance rule share buckets."""
    if policy.placement == Placement.SKEW:
        skewed = CATALOGUE.skew[jobs.model] > policy.skew_limit
        acceptance = np.where(skewed, kernel.ONLY_BEST, kernel.ANY_GPUS)
    else:
        acceptance = np.full(jobs.jobs, kernel.BY_TIMERS)
    sensitivity_bin = np.searchsorted(policy.sensitivity_edges, tables.sensitivity)[tables.profile]
    sensitivity_bins, service_bins = len(policy.sensitivity_edges) + 1, len(policy.service_edges) + 1
    code = (jobs.gpus * sensitivity_bins + sensitivity_bin) * 3 + acceptance
    _, first, group, sizes = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    example = np.repeat(first, service_bins)
    demand_bin = np.searchsorted(policy.demand_edges, jobs.gpus[example])
    class_group = demand_bin * sensitivity_bins + sensitivity_bin[example]
    # A job that lost its GPUs comes back to a new position, so with preemption twice the jobs keep compaction rare.
    positions = np.repeat(sizes, service_bins) * (2 if policy.preemption else 1)
    return {
        "group": group,
        "gpus": jobs.gpus[example],
        "best_tier": tables.best_tier[tables.profile][example],
        "acceptance": acceptance[example],
        "timer_class": class_group * service_bins + np.tile(np.arange(service_bins), len(first)),
        "capacity": 2 ** np.ceil(np.log2(positions)).astype(np.int64),
    }
