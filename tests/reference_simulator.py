"""The rules of `ddl_gym.simulator` once more, as sentences: the oracle that the compiled kernel is compared with.

Plain Python, nothing incremental, slow. Floating-point operations follow the rules to the letter: results compare with
`==`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from math import floor, inf, isnan, nan, sqrt
from operator import add

import numpy as np

from ddl_gym.jobs import JobRecords
from ddl_gym.policies import Order, Placement

MACHINE, RACK, NETWORK, NONE = 0, 1, 2, -1
Holding = dict[int, int]  # machine: GPUs


@dataclass(eq=False)
class Job:
    """What a job is, and what has become of it."""

    index: int
    submit_s: float
    gpus: int
    profile: int
    iterations: float
    ideal_s: float
    compute_s: float
    skewed: bool
    best_tier: int
    demand_and_sensitivity_bin: int
    # Waiting.
    enqueue_s: float = nan
    timer_class: int = NONE
    key: float = nan
    tie: float = 0.0
    forgiven: float = 0.0
    # Running: this stretch.
    holding: Holding = field(default_factory=dict)
    held_from_s: float = nan
    restore_paid_s: float = nan
    since_s: float = nan
    iteration_s: float = nan
    # Records.
    start_s: float = nan
    finish_s: float = nan
    done: float = 0.0
    running_s: float = 0.0
    restore_s: float = 0.0
    communication_s: float = 0.0
    lost_s: float = 0.0
    tier_s: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    preemptions: int = 0
    moves: int = 0
    tier: int = NONE

    def held_s(self, now: float) -> float:
        return now - self.held_from_s if self.holding else 0.0

    def service(self, now: float) -> float:
        return self.gpus * (self.running_s + self.held_s(now))

    def done_at(self, now: float) -> float:
        if self.holding and now > self.since_s:
            return min(self.iterations, self.done + (now - self.since_s) / self.iteration_s)
        return self.done

    def book_progress(self, now: float) -> None:
        self.done = self.done_at(now)
        if now > self.since_s:
            self.communication_s += (now - self.since_s) * ((self.iteration_s - self.compute_s) / self.iteration_s)

    def expect_finish(self) -> None:
        self.finish_s = self.since_s + (self.iterations - self.done) * self.iteration_s


def by_rank(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (job.key, job.tie, job.index))


def bin_of(value: float, edges: Iterable[float]) -> int:
    """The first bin whose upper edge is >= the value."""
    return sum(edge < value for edge in edges)


def mean(values: list[float]) -> float:
    return reduce(add, values) / len(values)  # sum() compensates rounding errors since Python 3.12


class ReferenceSimulator:
    """One trace on one cluster under one policy; `skew` (J,) is that of each job's model, 0 if not given."""

    def __init__(self, cluster, jobs, policy, tables, restore_s=60.0, skew=None) -> None:
        self.cluster, self.table, self.policy, self.restore_s = cluster, jobs, policy, restore_s
        per_rack = cluster.machines_per_rack
        self.racks = [range(rack * per_rack, (rack + 1) * per_rack) for rack in range(cluster.racks)]
        self.machines = [machine for rack in self.racks for machine in rack]
        self.free = [cluster.gpus_per_machine for _ in self.machines]
        self.affinity: list[int | None] = [None for _ in self.machines]
        self.seconds = tables.seconds.tolist()
        self.steps = list(zip(tables.step_s.tolist(), tables.step_state.tolist(), strict=True))
        self.network_state = self.steps.pop(0)[1]

        skew = [0.0] * jobs.jobs if skew is None else np.asarray(skew).tolist()
        columns = (jobs.submit_s.tolist(), jobs.gpus.tolist(), jobs.duration_s.tolist(), tables.profile.tolist(), skew)
        self.jobs = []
        for index, (submit_s, gpus, duration_s, profile, job_skew) in enumerate(zip(*columns, strict=True)):
            ideal_s, compute_s = float(tables.ideal_s[profile]), float(tables.compute_s[profile])
            skewed = job_skew > policy.skew_limit
            sensitivity_bin = bin_of(float(tables.sensitivity[profile]), policy.sensitivity_edges)
            row = bin_of(gpus, policy.demand_edges) * (len(policy.sensitivity_edges) + 1) + sensitivity_bin
            work = duration_s / ideal_s, ideal_s, compute_s
            self.jobs.append(Job(index, submit_s, gpus, profile, *work, skewed, self.best_tier(gpus), row))
        self.pending, self.queue, self.running, self.finished = list(self.jobs), [], [], []

        self.now_s, self.round = 0.0, 1
        self.preemption_margin, self.set_from_outside = policy.preemption_margin, False
        # By the tier waited for, then by class.
        self.timers = [[policy.machine_timer_s] * policy.classes, [policy.rack_timer_s] * policy.classes]
        self.windows = [[[] for _ in range(policy.classes)] for _ in (MACHINE, RACK)]

    def set_timers(self, machine_s: list[float], rack_s: list[float]) -> None:
        self.timers, self.set_from_outside = [list(map(float, machine_s)), list(map(float, rack_s))], True

    def set_preemption_margin(self, margin: float) -> None:
        self.preemption_margin, self.set_from_outside = margin, True

    def advance(self, until_s: float = inf) -> None:
        if self.set_from_outside:
            self.scheduling_pass()
        while len(self.finished) < len(self.jobs):
            if self.next_instant() > until_s:
                self.now_s = until_s
                break
            self.now_s = self.next_instant()
            self.handle_instant()

    # Time.

    def next_round(self) -> float:
        return self.round * self.policy.round_s

    def next_instant(self) -> float:
        finishes = [job.finish_s for job in self.running]
        step = [step_s for step_s, _ in self.steps[:1]]
        submission = [job.submit_s for job in self.pending[:1]]
        expiries = [job.enqueue_s + timers[job.timer_class] for job in self.queue for timers in self.timers]
        later = [expiry_s for expiry_s in expiries if expiry_s > self.now_s]
        return min([*finishes, *step, *submission, *later, self.next_round()])

    def handle_instant(self) -> None:
        at_round = self.next_round() <= self.now_s
        self.complete()
        self.take_network_step()
        while self.pending and self.pending[0].submit_s <= self.now_s:
            self.enqueue(self.pending.pop(0))
        if at_round:
            for job in self.running:
                self.set_priority(job)
            self.promote()
            self.preempt()
        self.scheduling_pass()
        if at_round:
            if self.upgrade():
                self.scheduling_pass()
            if self.policy.auto_tuner:
                self.tune_timers()
                self.scheduling_pass()
        while self.next_round() <= self.now_s:
            self.round += 1

    def complete(self) -> None:
        due = [job for job in self.running if job.finish_s <= self.now_s]
        for job in sorted(due, key=lambda job: (job.finish_s, job.index)):
            self.release(job.holding)
            self.stop(job)
            job.done = job.iterations
            self.finished.append(job)

    def take_network_step(self) -> None:
        while self.steps and self.steps[0][0] <= self.now_s:
            self.network_state = self.steps.pop(0)[1]
            for job in self.running:
                if self.iteration_s(job, job.tier) != job.iteration_s:
                    job.book_progress(self.now_s)
                    job.since_s = max(job.since_s, self.now_s)
                    job.iteration_s = self.iteration_s(job, job.tier)
                    job.expect_finish()

    def iteration_s(self, job: Job, tier: int) -> float:
        return self.seconds[self.network_state][job.profile][tier]

    # Offers.

    def best_tier(self, gpus: int) -> int:
        if gpus <= self.cluster.gpus_per_machine:
            return MACHINE
        return RACK if gpus <= self.cluster.gpus_per_machine * self.cluster.machines_per_rack else NETWORK

    def offer(self, job: Job) -> tuple[int, Holding] | None:
        free = self.free
        if sum(free) < job.gpus:
            return None
        if self.policy.placement == Placement.SKEW and not job.skewed:
            holding = self.fill(sorted(self.machines, key=lambda m: (free[m], m)), job.gpus)
            return self.tier_of(holding), holding

        machines = [m for m in self.machines if free[m] >= job.gpus]
        if machines:
            return MACHINE, {self.choose_machine(machines, job.gpus): job.gpus}

        rack_free = {rack: sum(free[m] for m in rack) for rack in self.racks}
        fitting = [rack for rack in self.racks if rack_free[rack] >= job.gpus]
        if fitting:
            rack = min(fitting, key=lambda rack: rack_free[rack])  # ties: min and sorted keep the lower index first
            return RACK, self.fill(self.fullest_first(rack), job.gpus)

        chosen: list[range] = []
        for rack in sorted(self.racks, key=lambda rack: -rack_free[rack]):
            if sum(rack_free[r] for r in chosen) < job.gpus:
                chosen.append(rack)
        return NETWORK, self.fill(self.fullest_first(m for rack in chosen for m in rack), job.gpus)

    def choose_machine(self, machines: list[int], gpus: int) -> int:
        if self.policy.placement == Placement.AFFINITY:
            alike = [m for m in machines if self.affinity[m] == gpus]
            idle = [m for m in machines if self.is_idle(m)]
            if alike or idle:
                return self.fullest_first(alike or idle)[0]
        return min(machines, key=lambda m: (self.free[m], m))

    def fullest_first(self, machines: Iterable[int]) -> list[int]:
        """Most free GPUs first."""
        return sorted(machines, key=lambda m: (-self.free[m], m))

    def fill(self, machines: list[int], gpus: int) -> Holding:
        """Each machine gives all it has until the demand is met."""
        holding: Holding = {}
        for machine in machines:
            share = min(self.free[machine], gpus - sum(holding.values()))
            if share > 0:
                holding[machine] = share
        return holding

    def tier_of(self, holding: Holding) -> int:
        """The widest boundary that these machines span."""
        racks = {machine // self.cluster.machines_per_rack for machine in holding}
        return MACHINE if len(holding) == 1 else RACK if len(racks) == 1 else NETWORK

    def is_idle(self, machine: int) -> bool:
        return self.free[machine] == self.cluster.gpus_per_machine

    def accepts(self, job: Job, tier: int) -> bool:
        if self.policy.placement == Placement.SKEW:
            return tier == job.best_tier or not job.skewed
        return tier == job.best_tier or self.now_s >= job.enqueue_s + self.timers[tier - 1][job.timer_class]

    # The queue.

    def enqueue(self, job: Job) -> None:
        job.enqueue_s = self.now_s
        self.set_priority(job)
        edges = self.policy.service_edges
        job.timer_class = job.demand_and_sensitivity_bin * (len(edges) + 1) + bin_of(job.service(self.now_s), edges)
        self.queue.append(job)

    def set_priority(self, job: Job) -> None:
        now, edges = self.now_s, self.policy.las_edges
        done, service, running_s = job.done_at(now), job.service(now), job.running_s + job.held_s(now)
        key_of = {
            Order.FIFO: job.submit_s,
            Order.SRTF: (job.iterations - done) * job.ideal_s,
            Order.LAS: service,
            Order.DISCRETISED_LAS: float(sum(edge <= service - job.forgiven for edge in edges)),
            Order.NETWORK_SENSITIVITY: done * job.ideal_s / running_s if running_s > 0 else 0.0,
            Order.USEFUL_SERVICE: job.gpus * (done * job.ideal_s),
        }
        job.key = key_of[self.policy.order]
        if self.policy.order == Order.DISCRETISED_LAS:
            job.tie = inf if isnan(job.start_s) else job.start_s

    def promote(self) -> None:
        for job in self.queue if self.policy.order == Order.DISCRETISED_LAS else []:
            service = job.service(self.now_s)
            patience_s = self.policy.promote_factor * (service - job.forgiven) / job.gpus
            if job.key > 0 and self.now_s - job.enqueue_s >= patience_s:
                job.forgiven = service
                self.set_priority(job)

    def scheduling_pass(self) -> None:
        self.set_from_outside = False
        for job in by_rank(self.queue):
            self.start_if_it_accepts(job)

    def start_if_it_accepts(self, job: Job) -> None:
        offer = self.offer(job)
        if offer is not None and self.accepts(job, offer[0]):
            if offer[0] in (MACHINE, RACK):
                window = self.windows[offer[0]][job.timer_class]
                window.append((self.now_s, self.now_s - job.enqueue_s))
                del window[: -self.policy.tuner_window]
            self.queue.remove(job)
            self.take(job, offer[1])
            self.start(job, *offer)

    # GPUs and running.

    def take(self, job: Job, holding: Holding) -> None:
        for machine, gpus in holding.items():
            if self.is_idle(machine):
                self.affinity[machine] = job.gpus
            self.free[machine] -= gpus

    def release(self, holding: Holding) -> None:
        for machine, gpus in holding.items():
            self.free[machine] += gpus
            if self.is_idle(machine):
                self.affinity[machine] = None

    def start(self, job: Job, tier: int, holding: Holding) -> None:
        """A stretch of running begins, on GPUs already taken."""
        job.tier, job.holding, job.held_from_s = tier, holding, self.now_s
        if isnan(job.start_s):
            job.start_s, job.restore_paid_s = self.now_s, 0.0
        else:
            job.restore_paid_s = self.restore_s
        job.since_s = self.now_s + job.restore_paid_s
        job.iteration_s = self.iteration_s(job, tier)
        job.expect_finish()
        self.running.append(job)

    def stop(self, job: Job) -> None:
        """A stretch of running ends; releasing the GPUs is another matter."""
        job.book_progress(self.now_s)
        held_s = job.held_s(self.now_s)
        job.running_s += held_s
        job.tier_s[job.tier] += held_s
        job.restore_s += min(held_s, job.restore_paid_s)
        job.holding = {}
        self.running.remove(job)

    def interrupt(self, job: Job) -> None:
        """Stop it for preemption or a move: the unfinished iteration is lost."""
        progress_s = max(0.0, job.held_s(self.now_s) - job.restore_paid_s)
        self.stop(job)
        whole = floor(job.done)
        job.lost_s += min(progress_s, (job.done - whole) * job.iteration_s)
        job.done = float(whole)

    # Rounds.

    def is_protected(self, job: Job) -> bool:
        return job.held_s(self.now_s) < self.policy.quantum_s

    def preempt(self) -> None:
        claimants, claimed = self.walk_claims() if self.policy.preemption else ([], [])
        for job in claimed:
            self.release(job.holding)
        for job in claimants if claimed else []:
            self.start_if_it_accepts(job)
        for job in by_rank(claimed):
            if all(self.free[machine] >= gpus for machine, gpus in job.holding.items()):
                self.take(job, job.holding)
            else:
                self.interrupt(job)
                job.preemptions += 1
                self.enqueue(job)

    def walk_claims(self) -> tuple[list[Job], list[Job]]:
        """Who would get enough GPUs, and who would give theirs up."""
        claimants, claimed, free = [], [], sum(self.free)
        claimable = by_rank(job for job in self.running if not self.is_protected(job))
        for job in by_rank(self.queue):
            claims: list[Job] = []
            while free < job.gpus and claimable and job.key < (1 - self.preemption_margin) * claimable[-1].key:
                claims.append(claimable.pop())
                free += claims[-1].gpus
            if free < job.gpus:
                break
            claimants.append(job)
            claimed += claims
            free -= job.gpus
        return claimants, claimed

    def upgrade(self) -> bool:
        """Whether a job moved."""
        moves_before = sum(job.moves for job in self.jobs)
        may_move = self.policy.upgrade and self.policy.placement != Placement.SKEW
        for job in by_rank(self.running) if may_move else []:
            offer = self.offer(job)
            if offer is None or self.is_protected(job) or offer[0] >= job.tier:
                continue
            iterations_left = job.iterations - floor(job.done_at(self.now_s))
            if self.restore_s + iterations_left * self.iteration_s(job, offer[0]) < job.finish_s - self.now_s:
                self.take(job, offer[1])
                self.release(job.holding)
                self.interrupt(job)
                self.start(job, *offer)
                job.moves += 1
        return sum(job.moves for job in self.jobs) > moves_before

    def tune_timers(self) -> None:
        for tier, default_s in ((MACHINE, self.policy.machine_timer_s), (RACK, self.policy.rack_timer_s)):
            for timer_class, window in enumerate(self.windows[tier]):
                window[:] = [entry for entry in window if not self.now_s - entry[0] > self.policy.tuner_max_age_s]
                timer_s = default_s
                if window:
                    mean_s = mean([starvation_s for _, starvation_s in window])
                    variance = mean([(starvation_s - mean_s) * (starvation_s - mean_s) for _, starvation_s in window])
                    timer_s = mean_s + self.policy.tuner_std_factor * sqrt(variance)
                self.timers[tier][timer_class] = max(0.0, timer_s)
        self.timers[RACK] = [max(machine_s, rack_s) for machine_s, rack_s in zip(*self.timers, strict=True)]

    # What came of it.

    def records(self) -> JobRecords:
        of_the_run = JobRecords._fields[JobRecords._fields.index("start_s") :]
        columns = {name: np.array([getattr(job, name) for job in self.jobs]) for name in of_the_run}
        columns["finish_s"] = np.array([job.finish_s if job in self.finished else nan for job in self.jobs])
        given = [name for name in JobRecords._fields if name not in of_the_run]
        return JobRecords(**{name: getattr(self.table, name) for name in given}, **columns)

    def verify(self) -> None:
        """The invariants, from scratch; AssertionError if one is broken."""
        now, in_some_state = self.now_s, [*self.pending, *self.queue, *self.running, *self.finished]
        assert sorted(job.index for job in in_some_state) == list(range(len(self.jobs)))
        for machine in self.machines:
            held = sum(job.holding.get(machine, 0) for job in self.jobs)
            assert held == self.cluster.gpus_per_machine - self.free[machine] <= self.cluster.gpus_per_machine
            assert self.is_idle(machine) == (self.affinity[machine] is None)
        for job in self.jobs:
            assert sum(job.holding.values()) == (job.gpus if job in self.running else 0)
            assert 0 <= job.done <= job.iterations
            assert min(job.running_s, job.restore_s, job.communication_s, job.lost_s, *job.tier_s) >= 0
        for job in self.running:
            assert self.tier_of(job.holding) == job.tier >= job.best_tier
            assert job.submit_s <= job.start_s <= job.held_from_s <= now <= job.finish_s
        assert all(job.enqueue_s <= now for job in self.queue)
        assert all(job.done == job.iterations and job.finish_s <= now for job in self.finished)
        assert all(machine_s <= rack_s for machine_s, rack_s in zip(*self.timers, strict=True))
