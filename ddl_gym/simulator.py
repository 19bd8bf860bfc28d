"""How is a trace run on a cluster? The rules of the simulation, and the class that runs them.

The rules
=========

Everything below happens in `kernel.py`, and once more, independently, in tests/reference_simulator.py. There is no
randomness: the same cluster, network, jobs, policy and timers give the same schedule.

**Time** is float64 seconds after the first submission. The simulation jumps from instant to instant. The next instant
is the earliest of: the earliest `finish_s` of a running job, the next network step, the next submission, the next
timer expiry (`enqueue_s + timer` of a queued job, if later than now), the next round (`k * round_s`, k = 1, 2, ...;
after each instant the next round is the first one later than now). It ends when every job has finished. At one
instant, in this order:

1. completions: running jobs with `finish_s <= now`, by (finish_s, job index);
2. the network step, if one is due now;
3. arrivals: jobs with `submit_s <= now` join the queue, by job index;
4. (timer expiries change who accepts what in the pass below);
5. at a round: priority refresh, promotion, preemption;
6. the scheduling pass;
7. at a round: placement upgrades, one more pass if a job moved; then the auto-tuner sets the timers, and one more
   pass. (A round with an empty queue and no running job that could be upgraded changes nothing but timers.)

`advance(until_s)` handles every instant up to and including until_s, then sets the clock to until_s: a decision taken
there comes last at its instant. Timers or a margin set from outside take effect at once: the next advance begins with
a pass.

**Gang.** A job holds all its GPUs or none. **Best tier** of a demand: MACHINE if it fits an empty machine, else RACK
if it fits an empty rack, else NETWORK.

**Offers.** A queued job is offered, under `Placement.CONSOLIDATE`, the best tier at which the free GPUs can hold it
now:

* MACHINE, if some machine has enough free GPUs: of those, the one with the fewest free GPUs (best fit), ties to the
  lower index;
* else RACK, if some rack has: of those, the rack with the fewest free GPUs, ties to the lower index; in it, machines
  with most free GPUs first, ties to the lower index, each giving all it has until the demand is met;
* else NETWORK, if the cluster has: racks with most free GPUs first, ties to the lower index, until their sum covers
  the demand; then of the machines of these racks those with most free GPUs first, ties to the lower index, each
  giving all it has until the demand is met;
* else nothing.

`Placement.AFFINITY` (after Gandiva, Xiao et al., OSDI'18) changes the choice of machine at MACHINE only: of the
machines with enough free GPUs, one whose affinity equals the job's demand, most free GPUs first; else an idle
machine; else best fit as above; ties to the lower index. A machine that leaves idleness takes as affinity the demand
of the job that it starts (at any tier), and loses it when it is idle again. (Claimed GPUs, below, count as released,
and as started again if the job goes on.)

`Placement.SKEW` (after Tiresias, Gu et al., NSDI'19): a job whose skew (largest tensor / model size) is above
`skew_limit` is offered the same as under CONSOLIDATE but accepts only its best tier; any other job takes any free
GPUs: machines with fewest (but some) free GPUs first, ties to the lower index, each giving all it has until the
demand is met; its tier is then the widest boundary that these machines span. Under SKEW timers play no part.

**Delay scheduling** (after Dally, arXiv 2401.16492; a reconstruction). `enqueue_s` is when the job was submitted or
last lost its GPUs; starvation is now - enqueue_s. A job accepts an offer at its best tier at once. Otherwise it
accepts RACK from `enqueue_s + machine_timer_s` on, and NETWORK from `enqueue_s + rack_timer_s` on (same clock: the
rack timer is the total wait, and never less than the machine timer). The timers are those of the job's class.

**Class** = demand bin x sensitivity bin x service bin, numbered in this order with the last running fastest. A value
falls in the first bin whose upper edge is >= the value, above all edges in the last one (so E edges make E + 1 bins).
Sensitivity is iteration time at NETWORK / at the best tier - 1 without congestion. Attained service is that at
`enqueue_s`: a job keeps its class while it waits.

**Priority.** Jobs are served by ascending (key, tie, job index). A key is computed when a job joins the queue, and
for running jobs at each round; it does not change while a job waits (but for promotion). With `service` = GPUs x
running time so far:

* FIFO: key = submit_s;
* SRTF: key = (iterations - done) * ideal_s, the remaining run time at the best tier without congestion;
* LAS: key = service (2D-LAS: Gu et al., NSDI'19);
* DISCRETISED_LAS: key = the number of `las_edges` that are <= service - forgiven service; tie = first start, inf if
  never started. Promotion, at a round, of a queued job with key > 0: if now - enqueue_s >= promote_factor * (service
  - forgiven) / GPUs, all its service so far is forgiven;
* NETWORK_SENSITIVITY (reconstruction of Dally's score): key = ideal time of the work done / running time = done *
  ideal_s / running time, 0 if it has not run. Low = hurt most by network and restarts = served first;
* USEFUL_SERVICE: key = GPUs * (done * ideal_s), the service times that score: attained service without what network
  and restarts took of it. The score alone makes badly placed jobs squat on their GPUs while well placed ones are
  preempted; this order keeps its preference and serves short jobs first, so the policy `dally` uses it.

**Asking** (for `ddl_gym/JobOffer-v0` only). Instead of by timers, an offer worse than a job's best tier is accepted
or declined by the agent. The pass asks about such offers in priority order; a job that declined is not asked again
before the next round, unless the offer's tier changes. In the walk of a preemption only offers at the best tier are
accepted.

The tie is 0 except where said. **Scheduling pass**: the queued jobs in priority order; each that accepts its offer
starts; one that holds out or does not fit is passed over (no head-of-line blocking).

**Work.** A job has `iterations` = duration_s / ideal_s, where ideal_s is its iteration time at its best tier without
congestion. Its iteration time now, `iteration_s[profile, tier]`, follows from network.py. A start at `now` gives
`since_s` = now, or now + restore_s if the job has run before; finish_s = since_s + (iterations - done) * iteration_s.
A network step at `now` touches only running jobs whose iteration time it changes: the progress is booked (below),
since_s = max(since_s, now), and finish_s is computed anew.

**Booking progress** of a running job at `now`: if now > since_s: done = min(iterations, done + (now - since_s) /
iteration_s); communication_s += (now - since_s) * ((iteration_s - compute_s) / iteration_s). At a completion done =
iterations instead.

**Losing GPUs** (completion, preemption, move) at `now`: progress is booked; held = now - the time of the last start;
running_s += held; tier_s[tier] += held; restore_s += min(held, the restore this start paid for (0 or restore_s)). On
preemption and move, iterations finished count, the unfinished one is lost: whole = floor(done), done = whole, and
lost_s += the lesser of (done before - whole) * iteration_s and max(0, held - what this start paid for restoring).

**Preemption**, at a round, if there are queued jobs. A running job is protected until it has held its GPUs for
quantum_s. Waiting jobs, best first, claim GPUs: while the GPUs counted free are fewer than a waiting job asks for, it
claims the worst-ranked (greatest (key, tie, job index)) unprotected running job not yet claimed, provided that it
outranks it: key of the waiting job < (1 - preemption_margin) * key of the running one; the claimed job's GPUs count
as free. A waiting job that gets enough is a claimant and its GPUs no longer count as free; the first that does not
get enough returns what it claimed and ends the walk. If anything stands claimed: the claimed GPUs are released; each
claimant in priority order gets its offer (from everything free now) and starts if it accepts; then each claimed job,
best rank first, goes on undisturbed if its own GPUs (as counts per machine) are still free, else it is preempted: it
has lost its GPUs and joins the queue. So nobody is preempted for a job that holds out. (A reconstruction: the paper's
rule is not published in detail.)

**Placement upgrade**, at a round. Running jobs, by ascending (key, tie, job index) with the keys of this round (those
started at this instant have held no GPUs for quantum_s and are skipped unless quantum_s is 0), that are unprotected
and at a tier worse than their best: if the tier free for the job now (its own GPUs not counted) is better than its
tier, and moving would let it finish earlier - restore_s + (iterations - floor(done now)) * iteration_s[new tier] <
finish_s - now - it loses its GPUs (a move, not a preemption) and starts there at once. The offer is chosen, and its
new GPUs are taken, before its own are released. Jobs of `Placement.SKEW` never move.

**Auto-tuner** (reconstruction of Dally's). Whenever a queued job starts at MACHINE or RACK, its class's window for
that tier records (now, starvation); it holds the last `tuner_window` entries. At a round, entries with now - time >
tuner_max_age_s are dropped; the timer of (class, tier) becomes mean + tuner_std_factor * (population standard
deviation), the policy's own timer if the window is empty (mean = sum from oldest to newest / n; variance likewise),
at least 0; the rack timer is then raised to the machine timer if less.

**Fine print.** "Has run before" means: has started, if only for 0 s. What a rule says of a running job at a round (service,
running time, done) includes its present stretch; nothing is booked by it. A claimant may need no claim; if nobody claims
anything, the walk has no effect. Starts of claimants count for the auto-tuner, moves and resumed jobs do not. A job so
short that its finish_s equals its start makes a second instant at the same time, without a second round. Of the edges in a
tie of network steps each is an instant of its own.
"""

from collections.abc import Callable
from math import inf, isnan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddl_gym import kernel
from ddl_gym.cluster import NONE, ClusterSpec
from ddl_gym.jobs import JobRecords, JobTable
from ddl_gym.network import IterationTables, Network, iteration_tables
from ddl_gym.policies import Policy
from ddl_gym.world import Sizes, allocate, fill, world_row

MAX_RESTORE_S = 31_536_000.0
_FRUITLESS = 1_000_000  # preemptions without a finish after which a run is given up
_CHUNK = 50_000  # instants between two calls of the progress function and two chances to interrupt
_CONSTANT = ("rules", "profiles", "iteration_s", "step_s", "step_state", "las_edges", "service_edges")


class Segments(NamedTuple):
    """Who held which GPUs when: one row for each machine of each finished stretch of running; S rows."""

    job: NDArray[np.int64]  # (S,)
    machine: NDArray[np.int64]  # (S,)
    gpus: NDArray[np.int64]  # (S,)
    tier: NDArray[np.int64]  # (S,)
    start_s: NDArray[np.float64]  # (S,)
    end_s: NDArray[np.float64]  # (S,)


Snapshot = dict[str, NDArray[Any]]


class Simulator:
    """One trace on one cluster under one policy, by the rules above.

    `restore_s` is what every restart costs. `tables` replaces the iteration times of network.py by measured ones. With `log` every
    stretch of running is kept for `segments()`. ValueError names a job that the cluster cannot hold.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        jobs: JobTable,
        policy: Policy,
        *,
        network: Network | None = None,
        restore_s: float = 60.0,
        log: bool = False,
        tables: IterationTables | None = None,
    ) -> None:
        if jobs.jobs == 0:
            raise ValueError("the trace has no jobs")
        if not 0 <= restore_s <= MAX_RESTORE_S:
            raise ValueError(f"restore_s is {restore_s}, it must be from 0 to {MAX_RESTORE_S:g} (a year)")
        if jobs.gpus.max() > cluster.gpus:
            row = int(np.argmax(jobs.gpus > cluster.gpus))
            raise ValueError(f"job {jobs.job_id[row]} asks for {jobs.gpus[row]} GPUs, the cluster has {cluster.gpus}")
        if np.any(np.diff(jobs.submit_s) < 0) or not np.all(np.isfinite(jobs.submit_s)) or jobs.submit_s[0] < 0:
            raise ValueError("submit_s must be finite, 0 or more and ascending")
        if not np.all(np.isfinite(jobs.duration_s)) or jobs.duration_s.min() <= 0 or jobs.gpus.min() < 1:
            raise ValueError("every duration_s must be positive and finite, every job must ask for at least 1 GPU")
        self.cluster = cluster
        self.jobs = jobs
        self.policy = policy
        self.tables = tables or iteration_tables(jobs.gpus, jobs.model, cluster, network or Network())
        sizes = Sizes.of(cluster, jobs, policy, self.tables, log_rows=8 * cluster.gpus if log else 0)
        self.world = world_row(allocate(sizes, 1), 0)
        fill(self.world, cluster, jobs, policy, self.tables, restore_s)

    @property
    def now_s(self) -> float:
        """The clock."""
        return float(self.world.clock[0].now)

    @property
    def finished(self) -> bool:
        """Whether every job has finished."""
        return self.finished_jobs == self.jobs.jobs

    @property
    def finished_jobs(self) -> int:
        """Jobs finished so far."""
        return int(self.world.clock[0].finished)

    @property
    def events(self) -> int:
        """Arrivals, starts, losses of GPUs and rounds handled so far."""
        return int(self.world.clock[0].events)

    @property
    def timers_s(self) -> NDArray[np.float64]:
        """(C, 2) timers in force: machine timer, rack timer of each class."""
        return np.array(self.world.timers["timer_s"])

    def run(self, progress: Callable[[int, int], None] | None = None) -> JobRecords:
        """Simulate to the end; `progress(finished jobs, jobs)` is called now and then.

        ValueError if preemption keeps jobs from ever finishing: when restores and single iterations take longer than quantum_s.
        """
        finished, preemptions = 0, 0
        while not self._advance(inf, _CHUNK):
            if progress is not None:
                progress(self.finished_jobs, self.jobs.jobs)
            if self.finished_jobs > finished:
                finished, preemptions = self.finished_jobs, int(self.world.jobs["preemptions"].sum())
            elif self.world.jobs["preemptions"].sum() - preemptions > _FRUITLESS:
                raise ValueError(
                    f"policy {self.policy.name}: {_FRUITLESS:,} preemptions without a finished job; between them jobs do not get "
                    f"through a restore of {self.world.rules[0].restore_s:g} s and one iteration, raise quantum_s above "
                    f"{self.policy.quantum_s:g} s or the preemption margin"
                )
        if progress is not None:
            progress(self.finished_jobs, self.jobs.jobs)
        return self.records()

    def advance(self, until_s: float) -> None:
        """Handle everything up to and including `until_s`, then stand there (at the last instant if all jobs are done)."""
        if isnan(until_s) or until_s < self.now_s:
            raise ValueError(f"cannot advance to {until_s} s, the clock is at {self.now_s} s")
        while not self._advance(until_s, _CHUNK):
            pass

    def step_instant(self) -> bool:
        """Handle the next instant only; whether every job has finished. For tests and viewers."""
        self._advance(inf, 1)
        return self.finished

    def _advance(self, until_s: float, limit: int) -> bool:
        status = kernel.advance(self.world, until_s, limit)
        if status == kernel.LOG_FULL:
            log = self.world.log
            self.world = self.world._replace(log=np.concatenate([log, np.zeros_like(log)]))
        assert status != kernel.STUCK, "no event is left, but jobs are unfinished"
        return status in (kernel.ADVANCED, kernel.DONE)

    def set_timers(self, machine_s: ArrayLike, rack_s: ArrayLike) -> None:
        """Set the timers in force, seconds, (C,) or one number for all classes; they count from now on."""
        if self.world.rules[0].auto_tuner == 1:
            raise ValueError(f"policy {self.policy.name} tunes its own timers")
        timers = np.empty(self.world.timers.shape)
        timers[:, 0] = machine_s
        timers[:, 1] = rack_s
        if np.any(np.isnan(timers)) or np.any(timers < 0) or np.any(timers[:, 1] < timers[:, 0]):
            raise ValueError("timers must be 0 or more and no rack timer less than its machine timer")
        self.world.timers["timer_s"] = timers
        self.world.clock[0].stale = 1

    def set_preemption_margin(self, margin: float) -> None:
        """Set the preemption margin, in [0, 1], for the rounds to come."""
        if not 0 <= margin <= 1:
            raise ValueError(f"the preemption margin is {margin}, it must be in [0, 1]")
        self.world.clock[0].preemption_margin = margin
        self.world.clock[0].stale = 1

    def records(self) -> JobRecords:
        """What has happened to each job so far; the current stretch of a running job is not booked yet."""
        return records_of(self.world, self.jobs)

    def segments(self) -> Segments:
        """The stretches of running that have ended, in order of their end; needs `log=True`."""
        if len(self.world.log) == 0:
            raise ValueError("the simulator was made without log=True")
        rows = self.world.log[: self.world.clock[0].log_rows]
        return Segments(*(np.array(rows[name]) for name in Segments._fields))

    def snapshot(self) -> Snapshot:
        """A copy of everything that changes, for `restore`."""
        return {name: column.copy() for name, column in self.world._asdict().items() if name not in _CONSTANT}

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot taken from this simulator or one of the same cluster, jobs and policy."""
        changing = [name for name in kernel.World._fields if name not in _CONSTANT]
        if sorted(snapshot) != sorted(changing) or bool(len(snapshot["log"])) != bool(len(self.world.log)):
            raise ValueError("the snapshot is incomplete or of a simulator with another log setting")
        for name, column in snapshot.items():
            if name != "log" and column.shape != getattr(self.world, name).shape:
                raise ValueError(f"the snapshot is of another run: {name} has shape {column.shape}")
        self.world = self.world._replace(**{name: column.copy() for name, column in snapshot.items()})

    def verify(self) -> None:
        """Recompute every derived quantity from scratch; AssertionError if one disagrees."""
        w, clock, cluster = self.world, self.world.clock[0], self.cluster
        status = w.jobs["status"]
        held = np.zeros(cluster.machines, np.int64)
        pieces = 0
        for j in np.flatnonzero(status == kernel.RUNNING):
            p, gpus, machines = w.jobs[j].piece, 0, []
            while p != NONE:
                held[w.pieces[p].machine] += w.pieces[p].gpus
                gpus += w.pieces[p].gpus
                machines.append(int(w.pieces[p].machine))
                pieces += 1
                p = w.pieces[p].next_piece
            assert gpus == w.jobs[j].gpus, f"job {j} holds {gpus} GPUs"
            racks = {machine // cluster.machines_per_rack for machine in machines}
            tier = min(len(set(machines)) - 1, 1) if len(racks) == 1 else 2
            assert tier == w.jobs[j].tier, f"job {j} spans tier {tier}"
            assert w.jobs[j].finish_s >= clock.now and w.heap[w.jobs[j].heap_slot] == j
        free = cluster.gpus_per_machine - held
        assert np.array_equal(free, w.machines["free"]) and free.min() >= 0
        assert np.array_equal(free.reshape(cluster.racks, -1).sum(axis=1), w.racks["free"])
        assert clock.free == free.sum() and clock.machine_top == free.max() and clock.rack_top == w.racks["free"].max()
        assert np.array_equal(np.bincount(free, minlength=cluster.gpus_per_machine + 1), w.machine_counts)
        waiting = np.flatnonzero(status == kernel.QUEUED)
        assert clock.queued == len(waiting) == w.buckets["live"].sum()
        assert clock.running == (status == kernel.RUNNING).sum() and clock.finished == (status == kernel.FINISHED).sum()
        assert clock.next_job == (status != kernel.PENDING).sum()
        for j in waiting:
            bucket = w.buckets[w.jobs[j].bucket]
            assert w.nodes[bucket.tree_start + bucket.capacity + w.jobs[j].slot].job == j
            assert w.enqueue_s[bucket.slot_start + w.jobs[j].slot] == w.jobs[j].enqueue_s <= clock.now
        assert np.all(w.jobs["done"] >= 0) and np.all(w.jobs["done"] <= w.jobs["iterations"])
        assert np.all(w.jobs["done"][status == kernel.FINISHED] == w.jobs["iterations"][status == kernel.FINISHED])
        assert np.allclose(w.tier_s.sum(axis=1), w.jobs["running_s"])


def records_of(w: kernel.World, jobs: JobTable) -> JobRecords:
    """Records of the jobs of a World row."""
    rows = w.jobs[: jobs.jobs]
    return JobRecords(
        job_id=jobs.job_id,
        user=jobs.user,
        model=jobs.model,
        gpus=jobs.gpus,
        submit_s=jobs.submit_s,
        duration_s=jobs.duration_s,
        start_s=np.where(rows["first_start_s"] == inf, np.nan, rows["first_start_s"]),
        finish_s=np.where(rows["status"] == kernel.FINISHED, rows["finish_s"], np.nan),
        running_s=np.array(rows["running_s"]),
        restore_s=np.array(rows["restore_s"]),
        communication_s=np.array(rows["communication_s"]),
        lost_s=np.array(rows["lost_s"]),
        tier_s=w.tier_s[: jobs.jobs].copy(),
        preemptions=np.array(rows["preemptions"]),
        moves=np.array(rows["moves"]),
        tier=np.array(rows["tier"]),
    )
