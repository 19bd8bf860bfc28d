"""What does the simulated cluster do at each instant? The compiled event loop.

The rules are stated in `ddl_gym.simulator`; the functions here say which rule they are and how they make it fast. State is a
`World` of few record arrays that live outside; nothing is allocated inside. Without numba's compiler (NUMBA_DISABLE_JIT=1) the
same code runs as plain Python, bit for bit: only + - * / floor, sqrt and comparisons, no unstable sort, no global that changes.

Structures: each bucket of queued jobs (equal demand, class and acceptance rule) is a segment tree over enqueue positions whose nodes
hold the first-served job below them. Jobs of a bucket share their timers, so those whose timer has run out are a prefix of
the positions, and the first-served acceptable job of a bucket costs O(log n). Free capacity is kept as counts of machines by free GPUs,
by rack and in all. Running jobs sit in a binary heap by finish time.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

# _nrt=False: no reference counting of the World's arrays at each call (nothing is allocated here); it makes the loop several times faster.
_options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
jit = njit(**_options)
# For the functions of every event: a call copies the descriptors of all the World's arrays, which costs more than the work.
inlined = njit(**_options, inline="always")

NONE = -1
MACHINE, RACK, NETWORK = 0, 1, 2  # ddl_gym.cluster.Tier
FIFO, SRTF, LAS, DISCRETISED_LAS, NETWORK_SENSITIVITY, USEFUL_SERVICE = 0, 1, 2, 3, 4, 5  # ddl_gym.policies.Order
CONSOLIDATE, SKEW, AFFINITY = 0, 1, 2  # ddl_gym.policies.Placement
BY_TIMERS, ONLY_BEST, ANY_GPUS = 0, 1, 2  # acceptance rule of a bucket
PENDING, QUEUED, RUNNING, CLAIMED, FINISHED = 0, 1, 2, 3, 4  # status of a job
ADVANCED, DONE, LIMIT, LOG_FULL, STUCK, ASKING = 0, 1, 2, 3, 4, 5  # what advance() returns
ROW_LIMIT = 20_000_000  # instants that advance_rows gives a row
# Where in an instant the loop stands: between instants, before the first pass, before the upgrades, before the pass after them,
# before the auto-tuner, before the last pass.
BETWEEN, FIRST_PASS, UPGRADES, SECOND_PASS, TUNING, LAST_PASS = 0, 1, 2, 3, 4, 5


def _record(fields: list[tuple[str, str]]) -> np.dtype[Any]:
    """An aligned record type whose fields are attributes: `jobs[j].gpus`."""
    return np.dtype((np.record, np.dtype(fields, align=True)))


RULES = _record(
    [
        ("jobs", "i8"),  # counts, where an array may be longer
        ("buckets", "i8"),
        ("steps", "i8"),
        ("racks", "i8"),
        ("machines_per_rack", "i8"),
        ("gpus_per_machine", "i8"),
        ("gpus_per_rack", "i8"),
        ("gpus", "i8"),
        ("service_bins", "i8"),
        ("order", "i8"),
        ("placement", "i8"),
        ("preemption", "i8"),
        ("upgrade", "i8"),
        ("auto_tuner", "i8"),  # 0 off, 1 sets the timers, 2 only keeps tuned_s
        ("has_rounds", "i8"),
        ("asks", "i8"),  # 1: offers worse than the best tier are put to the agent, timers play no part
        ("round_s", "f8"),
        ("quantum_s", "f8"),
        ("restore_s", "f8"),
        ("promote_factor", "f8"),
        ("tuner_std_factor", "f8"),
        ("tuner_max_age_s", "f8"),
    ]
)
CLOCK = _record(
    [
        ("now", "f8"),
        ("preemption_margin", "f8"),
        ("next_expiry_s", "f8"),
        ("round_index", "i8"),  # of the next round
        ("next_job", "i8"),  # first job not submitted yet
        ("next_step", "i8"),  # first network step not taken yet
        ("network_state", "i8"),
        ("queued", "i8"),
        ("running", "i8"),  # = entries of the finish heap
        ("finished", "i8"),
        ("free", "i8"),  # GPUs
        ("machine_top", "i8"),  # most free GPUs on one machine
        ("rack_top", "i8"),  # most free GPUs in one rack
        ("free_piece", "i8"),  # head of the list of unused pieces
        ("stale", "i8"),  # timers or margin changed from outside since the last pass
        ("at_round", "i8"),
        ("phase", "i8"),  # where in the instant the loop stands
        ("asked_job", "i8"),  # whose offer awaits the agent's answer, NONE if none does
        ("asked_tier", "i8"),
        ("log_rows", "i8"),
        ("instants", "i8"),
        ("job_seconds", "f8"),  # integral of the jobs in the system over time
        ("events", "i8"),  # arrivals, starts, losses of GPUs, completions, rounds
    ]
)
JOB = _record(
    [
        ("submit_s", "f8"),
        ("iterations", "f8"),
        ("done", "f8"),  # iterations finished when since_s began
        ("since_s", "f8"),  # progress counts from here
        ("finish_s", "f8"),
        ("started_s", "f8"),  # last start
        ("first_start_s", "f8"),  # inf before
        ("restore_due_s", "f8"),  # what the last start pays
        ("enqueue_s", "f8"),
        ("key", "f8"),
        ("tie", "f8"),
        ("running_s", "f8"),
        ("restore_s", "f8"),
        ("communication_s", "f8"),
        ("lost_s", "f8"),
        ("forgiven_gpu_s", "f8"),
        ("gpus", "i4"),
        ("profile", "i4"),
        ("group", "i4"),
        ("status", "i4"),
        ("tier", "i4"),
        ("best_tier", "i4"),
        ("bucket", "i4"),
        ("slot", "i4"),  # position in its bucket
        ("heap_slot", "i4"),
        ("piece", "i4"),  # head of its list of pieces
        ("preemptions", "i4"),
        ("moves", "i4"),
        ("held_offer", "i4"),  # the tier it last declined when asked,
        ("held_round", "i4"),  # and the round before which it declined
    ]
)
BUCKET = _record(
    [
        ("gpus", "i8"),
        ("timer_class", "i8"),
        ("acceptance", "i8"),
        ("best_tier", "i8"),
        ("tree_start", "i8"),  # node 1 is the root; leaf of position p is node capacity + p
        ("slot_start", "i8"),
        ("capacity", "i8"),  # positions, a power of two
        ("tail", "i8"),  # positions used
        ("live", "i8"),  # jobs in it
        ("rack_ready", "i8"),  # first position that does not accept RACK yet
        ("network_ready", "i8"),  # first position that does not accept NETWORK yet
        ("cached_offer", "i8"),  # the offer for which `cached_job` is the best acceptable job; NONE: stale
        ("cached_job", "i8"),
    ]
)
NODE = _record([("key", "f8"), ("job", "i8")])
PROFILE = _record([("compute_s", "f8"), ("ideal_s", "f8")])
MACHINE_ROW = _record([("free", "i8"), ("affinity", "i8")])
RACK_ROW = _record([("free", "i8"), ("chosen", "i8")])
PIECE = _record([("machine", "i8"), ("gpus", "i8"), ("next_piece", "i8")])
TIMER = _record(
    [
        ("timer_s", "f8"),  # in force
        ("tuned_s", "f8"),  # what the auto-tuner would set
        ("default_s", "f8"),  # what it sets while the window is empty
        ("mean_s", "f8"),  # of the window when tuned_s was computed, 0 if it was empty
        ("deviation_s", "f8"),  # standard deviation, likewise
        ("factor", "f8"),  # with auto_tuner 1 the timer in force is tuned_s * factor + offset_s
        ("offset_s", "f8"),
        ("head", "i8"),  # oldest entry of the window
        ("entries", "i8"),
        ("changed", "i8"),  # the window changed since tuned_s was computed
    ]
)
ENTRY = _record([("time_s", "f8"), ("starvation_s", "f8")])
LOG = _record([("start_s", "f8"), ("end_s", "f8"), ("job", "i8"), ("machine", "i8"), ("gpus", "i8"), ("tier", "i8")])


Rows = NDArray[Any]  # a record array


class World(NamedTuple):
    """Everything a run needs; record arrays, see the dtypes above."""

    rules: NDArray[Any]  # (1,) RULES, constant
    clock: NDArray[Any]  # (1,) CLOCK
    jobs: NDArray[Any]  # (J,) JOB
    buckets: NDArray[Any]  # (B,) BUCKET; group * service_bins + service bin
    nodes: NDArray[Any]  # (sum of 2 capacity,) NODE, the buckets' trees end to end
    enqueue_s: NDArray[np.float64]  # (sum of capacity,) enqueue time of each position, ascending in a bucket
    profiles: NDArray[Any]  # (P,) PROFILE, constant
    iteration_s: NDArray[np.float64]  # (K, P, 3) by network state, profile, tier; constant
    step_s: NDArray[np.float64]  # (N,) network steps, constant
    step_state: NDArray[np.int64]  # (N,) constant
    timers: NDArray[Any]  # (C, 2) TIMER; column 0 machine timer, 1 rack timer
    windows: NDArray[Any]  # (C, 2, Q) ENTRY, ring buffers of the auto-tuner
    machines: NDArray[Any]  # (M,) MACHINE_ROW
    racks: NDArray[Any]  # (R,) RACK_ROW
    rack_machines: NDArray[np.int64]  # (R, G + 1) machines of a rack by free GPUs
    machine_counts: NDArray[np.int64]  # (G + 1,) machines by free GPUs
    rack_counts: NDArray[np.int64]  # (gpus_per_rack + 1,) racks by free GPUs
    pieces: NDArray[Any]  # (GPUs,) PIECE, linked lists: a job's GPUs on one machine
    heap: NDArray[np.int64]  # (min(J, GPUs),) running jobs, a heap by (finish_s, job)
    tier_s: NDArray[np.float64]  # (J, 3)
    las_edges: NDArray[np.float64]  # constant
    service_edges: NDArray[np.float64]  # constant
    pool: NDArray[np.int64]  # (min(J, GPUs),) scratch: running jobs, a heap by rank
    claimants: NDArray[np.int64]  # (min(J, GPUs),) scratch
    claimed: NDArray[np.int64]  # (min(J, GPUs),) scratch
    log: NDArray[Any]  # (L,) LOG


# === Order ===


@jit
def precedes(jobs: Rows, a: int, b: int) -> bool:
    """Whether job a is served before job b: ascending (key, tie, index)."""
    job_a = jobs[a]
    job_b = jobs[b]
    if job_a.key != job_b.key:
        return job_a.key < job_b.key
    if job_a.tie != job_b.tie:
        return job_a.tie < job_b.tie
    return a < b


@inlined
def set_key(w: World, j: int) -> None:
    """Rule "Priority": the key of job j now."""
    rules = w.rules[0]
    job = w.jobs[j]
    running_s = job.running_s
    done = job.done
    if job.status == RUNNING:
        now = w.clock[0].now
        running_s += now - job.started_s
        if now > job.since_s:
            iteration_s = w.iteration_s[w.clock[0].network_state, job.profile, job.tier]
            done = min(job.iterations, done + (now - job.since_s) / iteration_s)
    if rules.order == FIFO:
        job.key = job.submit_s
    elif rules.order == SRTF:
        job.key = (job.iterations - done) * w.profiles[job.profile].ideal_s
    elif rules.order == LAS:
        job.key = job.gpus * running_s
    elif rules.order == DISCRETISED_LAS:
        service = job.gpus * running_s - job.forgiven_gpu_s
        level = 0
        for edge in range(len(w.las_edges)):
            if w.las_edges[edge] <= service:
                level += 1
        job.key = float(level)
        job.tie = job.first_start_s
    elif rules.order == USEFUL_SERVICE:
        job.key = job.gpus * (done * w.profiles[job.profile].ideal_s)
    elif running_s > 0.0:
        job.key = done * w.profiles[job.profile].ideal_s / running_s
    else:
        job.key = 0.0


# === The queue: segment trees ===


@jit
def set_leaf(buckets: Rows, nodes: Rows, jobs: Rows, b: int, position: int, job: int) -> None:
    """Put a job (or NONE) at a position of bucket b and repair the winners above it."""
    bucket = buckets[b]
    start = bucket.tree_start
    node = bucket.capacity + position
    nodes[start + node].job = job
    if job != NONE:
        nodes[start + node].key = jobs[job].key
    node >>= 1
    while node >= 1:
        left = nodes[start + 2 * node]
        right = nodes[start + 2 * node + 1]
        if right.job == NONE:
            winner, key = left.job, left.key
        elif (
            left.job == NONE or right.key < left.key or (right.key == left.key and precedes(jobs, right.job, left.job))
        ):
            winner, key = right.job, right.key
        else:
            winner, key = left.job, left.key
        parent = nodes[start + node]
        if winner == parent.job and key == parent.key and winner != job:
            break
        parent.job = winner
        parent.key = key
        node >>= 1
    bucket.cached_offer = NONE


@jit
def best_of_prefix(buckets: Rows, nodes: Rows, jobs: Rows, b: int, end: int) -> int:
    """The first-served job among positions [0, end) of bucket b, or NONE."""
    bucket = buckets[b]
    start = bucket.tree_start
    if end == bucket.capacity:
        return nodes[start + 1].job
    best = NONE
    low = bucket.capacity
    high = bucket.capacity + end
    while low < high:
        if high & 1:
            high -= 1
            job = nodes[start + high].job
            if job != NONE and (best == NONE or precedes(jobs, job, best)):
                best = job
        low >>= 1
        high >>= 1
    return best


@jit
def compact(w: World, b: int) -> None:
    """Close the gaps in bucket b when its positions are used up; capacity is twice the jobs it can hold, so this is rare."""
    bucket = w.buckets[b]
    kept = 0
    for position in range(bucket.tail):
        job = w.nodes[bucket.tree_start + bucket.capacity + position].job
        if job != NONE:
            w.enqueue_s[bucket.slot_start + kept] = w.enqueue_s[bucket.slot_start + position]
            w.jobs[job].slot = kept
            w.nodes[bucket.tree_start + bucket.capacity + kept].job = job
            w.nodes[bucket.tree_start + bucket.capacity + kept].key = w.jobs[job].key
            kept += 1
    for position in range(kept, bucket.tail):
        w.nodes[bucket.tree_start + bucket.capacity + position].job = NONE
    for node in range(bucket.capacity - 1, 0, -1):
        left = w.nodes[bucket.tree_start + 2 * node]
        right = w.nodes[bucket.tree_start + 2 * node + 1]
        take_right = right.job != NONE and (left.job == NONE or precedes(w.jobs, right.job, left.job))
        w.nodes[bucket.tree_start + node].job = right.job if take_right else left.job
        w.nodes[bucket.tree_start + node].key = right.key if take_right else left.key
    bucket.tail = kept
    find_ready(w, b)


@inlined
def enqueue(w: World, j: int) -> None:
    """Job j joins the queue now: fixes its key, its class and its place in line."""
    rules = w.rules[0]
    clock = w.clock[0]
    job = w.jobs[j]
    job.status = QUEUED
    job.enqueue_s = clock.now
    set_key(w, j)
    service_bin = 0
    while service_bin < len(w.service_edges) and job.gpus * job.running_s > w.service_edges[service_bin]:
        service_bin += 1
    b = job.group * rules.service_bins + service_bin
    bucket = w.buckets[b]
    if bucket.tail == bucket.capacity:
        compact(w, b)
    job.bucket = b
    job.slot = bucket.tail
    w.enqueue_s[bucket.slot_start + bucket.tail] = clock.now
    bucket.tail += 1
    bucket.live += 1
    clock.queued += 1
    set_leaf(w.buckets, w.nodes, w.jobs, b, job.slot, j)


@inlined
def dequeue(w: World, j: int) -> None:
    """Job j leaves the queue."""
    job = w.jobs[j]
    bucket = w.buckets[job.bucket]
    if (
        w.nodes[bucket.tree_start + bucket.capacity + job.slot].job != NONE
    ):  # the walk of a preemption took it out before
        set_leaf(w.buckets, w.nodes, w.jobs, job.bucket, job.slot, NONE)
    bucket.live -= 1
    w.clock[0].queued -= 1
    if bucket.live == 0:
        bucket.tail = 0
        bucket.rack_ready = 0
        bucket.network_ready = 0


# === Rule "Delay scheduling" ===


@jit
def ready_after(w: World, b: int, timer_s: float) -> int:
    """First position of bucket b whose timer has not run out, by bisection."""
    bucket = w.buckets[b]
    low = 0
    high = bucket.tail
    while low < high:
        middle = (low + high) >> 1
        if w.enqueue_s[bucket.slot_start + middle] + timer_s <= w.clock[0].now:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def find_ready(w: World, b: int) -> None:
    """Find the ready prefixes of bucket b anew, after its timers or positions changed."""
    bucket = w.buckets[b]
    bucket.rack_ready = ready_after(w, b, w.timers[bucket.timer_class, 0].timer_s)
    bucket.network_ready = ready_after(w, b, w.timers[bucket.timer_class, 1].timer_s)
    bucket.cached_offer = NONE


@jit
def move_ready(w: World, b: int, ready: int, timer_s: float) -> int:
    """Push the end of a ready prefix over positions that are empty or whose timer has run out."""
    bucket = w.buckets[b]
    while ready < bucket.tail and (
        w.enqueue_s[bucket.slot_start + ready] + timer_s <= w.clock[0].now
        or w.nodes[bucket.tree_start + bucket.capacity + ready].job == NONE
    ):
        ready += 1
    return ready


@jit
def tier_free(w: World, gpus: int) -> int:
    """Rule "Offers": the best tier at which the free GPUs can hold this demand now, or NONE."""
    clock = w.clock[0]
    if gpus <= clock.machine_top:
        return MACHINE
    if gpus <= clock.rack_top:
        return RACK
    if gpus <= clock.free:
        return NETWORK
    return NONE


@jit
def accepts(w: World, j: int, offer: int) -> bool:
    """Whether queued job j takes this offer now."""
    job = w.jobs[j]
    bucket = w.buckets[job.bucket]
    if offer == NONE:
        return False
    if offer <= bucket.best_tier or bucket.acceptance == ANY_GPUS:
        return True
    if bucket.acceptance == ONLY_BEST or w.rules[0].asks == 1:
        return False
    return job.enqueue_s + w.timers[bucket.timer_class, offer - 1].timer_s <= w.clock[0].now


@jit
def best_unasked(w: World, b: int, offer: int) -> int:
    """Rule "Asking": the first-served job of bucket b that has not declined this offer since the last round, or NONE."""
    bucket = w.buckets[b]
    best = NONE
    for position in range(bucket.tail):
        j = w.nodes[bucket.tree_start + bucket.capacity + position].job
        if j == NONE:
            continue
        job = w.jobs[j]
        if (job.held_offer != offer or job.held_round != w.clock[0].round_index) and (
            best == NONE or precedes(w.jobs, j, best)
        ):
            best = j
    return best


@jit
def best_acceptor(w: World, b: int, offer: int) -> int:
    """The first-served job of bucket b that takes this offer, or NONE; notes the bucket's next expiry that matters."""
    bucket = w.buckets[b]
    clock = w.clock[0]
    if offer <= bucket.best_tier or bucket.acceptance == ANY_GPUS:
        return w.nodes[bucket.tree_start + 1].job
    if bucket.acceptance == ONLY_BEST:
        return NONE
    if w.rules[0].asks == 1:
        return best_unasked(w, b, offer)
    timer_s = w.timers[bucket.timer_class, offer - 1].timer_s
    before = bucket.rack_ready if offer == RACK else bucket.network_ready
    ready = move_ready(w, b, before, timer_s)
    if offer == RACK:
        bucket.rack_ready = ready
    else:
        bucket.network_ready = ready
    if ready < bucket.tail:
        clock.next_expiry_s = min(clock.next_expiry_s, w.enqueue_s[bucket.slot_start + ready] + timer_s)
    if bucket.cached_offer != offer or ready != before:
        bucket.cached_offer = offer
        bucket.cached_job = best_of_prefix(w.buckets, w.nodes, w.jobs, b, ready)
    return bucket.cached_job


@jit
def scheduling_pass(w: World) -> bool:
    """Rule "Scheduling pass". Offers only get worse within a pass, so taking the best acceptor again and again is the walk.

    Returns True when the walk has come to a job whose offer must be put to the agent; call again after `answer`.
    """
    clock = w.clock[0]
    while True:
        clock.next_expiry_s = math.inf
        best = NONE
        if clock.queued > 0 and clock.free > 0:
            for b in range(w.rules[0].buckets):
                bucket = w.buckets[b]
                if bucket.live > 0:
                    offer = tier_free(w, bucket.gpus)
                    if offer != NONE:
                        j = best_acceptor(w, b, offer)
                        if j != NONE and (best == NONE or precedes(w.jobs, j, best)):
                            best = j
        if best == NONE:
            return False
        if w.rules[0].asks == 1:
            job = w.jobs[best]
            offer = tier_free(w, job.gpus)
            if offer > job.best_tier and w.buckets[job.bucket].acceptance == BY_TIMERS:
                clock.asked_job = best
                clock.asked_tier = offer
                return True
        start_queued(w, best)


# === Placement ===


@jit
def set_free(w: World, machine: int, free: int) -> None:
    """Set a machine's free GPUs and repair every count of free capacity."""
    clock = w.clock[0]
    row = w.machines[machine]
    r = machine // w.rules[0].machines_per_rack
    rack = w.racks[r]
    change = free - row.free
    w.rack_machines[r, row.free] -= 1
    w.rack_machines[r, free] += 1
    w.machine_counts[row.free] -= 1
    w.machine_counts[free] += 1
    w.rack_counts[rack.free] -= 1
    row.free = free
    rack.free += change
    w.rack_counts[rack.free] += 1
    clock.free += change
    clock.machine_top = max(clock.machine_top, free)
    clock.rack_top = max(clock.rack_top, rack.free)
    while w.machine_counts[clock.machine_top] == 0:
        clock.machine_top -= 1
    while w.rack_counts[clock.rack_top] == 0:
        clock.rack_top -= 1
    if free == w.rules[0].gpus_per_machine:
        row.affinity = NONE


@jit
def take(w: World, j: int, machine: int, gpus: int) -> None:
    """Give GPUs of a machine to job j."""
    clock = w.clock[0]
    job = w.jobs[j]
    p = clock.free_piece
    piece = w.pieces[p]
    clock.free_piece = piece.next_piece
    piece.machine = machine
    piece.gpus = gpus
    piece.next_piece = job.piece
    job.piece = p
    row = w.machines[machine]
    if row.free == w.rules[0].gpus_per_machine:
        row.affinity = job.gpus
    set_free(w, machine, row.free - gpus)


@jit
def release(w: World, j: int) -> None:
    """Take all GPUs from job j."""
    clock = w.clock[0]
    job = w.jobs[j]
    while job.piece != NONE:
        p = job.piece
        piece = w.pieces[p]
        set_free(w, piece.machine, w.machines[piece.machine].free + piece.gpus)
        job.piece = piece.next_piece
        piece.next_piece = clock.free_piece
        clock.free_piece = p


@jit
def machine_with(w: World, free: int) -> int:
    """The lowest machine with exactly so many free GPUs; there is one."""
    per_rack = w.rules[0].machines_per_rack
    r = 0
    while w.rack_machines[r, free] == 0:
        r += 1
    machine = r * per_rack
    while w.machines[machine].free != free:
        machine += 1
    return machine


@jit
def machine_for(w: World, gpus: int) -> int:
    """Rule "Offers", MACHINE: best fit, or Gandiva's affinity before it."""
    rules = w.rules[0]
    if rules.placement == AFFINITY:
        found = NONE
        for machine in range(len(w.machines)):
            row = w.machines[machine]
            if row.affinity == gpus and row.free >= gpus and (found == NONE or row.free > w.machines[found].free):
                found = machine
        if found != NONE:
            return found
        if w.machine_counts[rules.gpus_per_machine] > 0:
            return machine_with(w, rules.gpus_per_machine)
    free = gpus
    while w.machine_counts[free] == 0:
        free += 1
    return machine_with(w, free)


@jit
def take_from_chosen_racks(w: World, j: int) -> None:
    """Rule "Offers", RACK and NETWORK: machines of the chosen racks, most free GPUs first, each giving all it has."""
    rules = w.rules[0]
    need = w.jobs[j].gpus
    for free in range(rules.gpus_per_machine, 0, -1):
        for r in range(rules.racks):
            if w.racks[r].chosen == 0 or w.rack_machines[r, free] == 0:
                continue
            for machine in range(r * rules.machines_per_rack, (r + 1) * rules.machines_per_rack):
                if w.machines[machine].free == free:
                    gpus = min(free, need)
                    take(w, j, machine, gpus)
                    need -= gpus
                    if need == 0:
                        return


@jit
def scatter(w: World, j: int) -> int:
    """Rule "Offers", SKEW: machines with fewest free GPUs first; returns the tier this makes."""
    rules = w.rules[0]
    need = w.jobs[j].gpus
    first = NONE
    tier = MACHINE
    for free in range(1, rules.gpus_per_machine + 1):
        for r in range(rules.racks):
            if w.rack_machines[r, free] == 0:
                continue
            for machine in range(r * rules.machines_per_rack, (r + 1) * rules.machines_per_rack):
                if w.machines[machine].free == free:
                    gpus = min(free, need)
                    take(w, j, machine, gpus)
                    need -= gpus
                    if first == NONE:
                        first = machine
                    elif first // rules.machines_per_rack != r:
                        tier = NETWORK
                    elif machine != first:
                        tier = max(tier, RACK)
                    if need == 0:
                        return tier
    return NONE


@inlined
def place(w: World, j: int, tier: int) -> None:
    """Give job j its GPUs at a tier that is free for it."""
    gpus = w.jobs[j].gpus
    if tier == MACHINE:
        take(w, j, machine_for(w, gpus), gpus)
        return
    need = gpus
    while need > 0:
        best = NONE
        for r in range(len(w.racks)):
            rack = w.racks[r]
            if rack.chosen == 1 or (tier == RACK and rack.free < gpus):
                continue
            if best == NONE:
                best = r
            elif tier == RACK:
                if rack.free < w.racks[best].free:
                    best = r
            elif rack.free > w.racks[best].free:
                best = r
        w.racks[best].chosen = 1
        need -= w.racks[best].free
    take_from_chosen_racks(w, j)
    for r in range(len(w.racks)):
        w.racks[r].chosen = 0


# === The finish heap ===


@jit
def finishes_before(jobs: Rows, a: int, b: int) -> bool:
    """Whether running job a completes before b: ascending (finish_s, index)."""
    finish_a = jobs[a].finish_s
    finish_b = jobs[b].finish_s
    return finish_a < finish_b or (finish_a == finish_b and a < b)


@jit
def sift_up(heap: NDArray[np.int64], jobs: Rows, slot: int) -> None:
    """Move a heap entry towards the root until its parent finishes earlier."""
    j = heap[slot]
    while slot > 0:
        parent = (slot - 1) >> 1
        other = heap[parent]
        if not finishes_before(jobs, j, other):
            break
        heap[slot] = other
        jobs[other].heap_slot = slot
        slot = parent
    heap[slot] = j
    jobs[j].heap_slot = slot


@jit
def sift_down(heap: NDArray[np.int64], jobs: Rows, slot: int, end: int) -> None:
    """Move a heap entry towards the leaves until its children finish later."""
    j = heap[slot]
    while True:
        child = 2 * slot + 1
        if child >= end:
            break
        if child + 1 < end and finishes_before(jobs, heap[child + 1], heap[child]):
            child += 1
        other = heap[child]
        if not finishes_before(jobs, other, j):
            break
        heap[slot] = other
        jobs[other].heap_slot = slot
        slot = child
    heap[slot] = j
    jobs[j].heap_slot = slot


@jit
def drop_from_heap(w: World, j: int) -> None:
    """Job j stops running."""
    clock = w.clock[0]
    slot = w.jobs[j].heap_slot
    clock.running -= 1
    last = w.heap[clock.running]
    w.jobs[j].heap_slot = NONE
    if last != j:
        w.heap[slot] = last
        w.jobs[last].heap_slot = slot
        sift_up(w.heap, w.jobs, slot)
        sift_down(w.heap, w.jobs, w.jobs[last].heap_slot, clock.running)


# === Starting, losing GPUs, finishing ===


@inlined
def start(w: World, j: int, tier: int) -> None:
    """Rule "Work": job j starts now at a tier that is free for it (any tier under ANY_GPUS)."""
    clock = w.clock[0]
    job = w.jobs[j]
    if w.buckets[job.bucket].acceptance == ANY_GPUS:
        tier = scatter(w, j)
    else:
        place(w, j, tier)
    job.restore_due_s = 0.0
    if job.first_start_s == math.inf:
        job.first_start_s = clock.now
    else:
        job.restore_due_s = w.rules[0].restore_s
    job.status = RUNNING
    job.tier = tier
    job.started_s = clock.now
    job.since_s = clock.now + job.restore_due_s
    job.finish_s = job.since_s + (job.iterations - job.done) * w.iteration_s[clock.network_state, job.profile, tier]
    w.heap[clock.running] = j
    clock.running += 1
    clock.events += 1
    sift_up(w.heap, w.jobs, clock.running - 1)


@inlined
def start_queued(w: World, j: int) -> None:
    """Start a queued job at what it is offered; the auto-tuner's window records how long it starved."""
    clock = w.clock[0]
    job = w.jobs[j]
    dequeue(w, j)
    start(w, j, tier_free(w, job.gpus))
    if w.rules[0].auto_tuner > 0 and job.tier < NETWORK:
        timer_class = w.buckets[job.bucket].timer_class
        timer = w.timers[timer_class, job.tier]
        window = w.windows.shape[2]
        at = (timer.head + timer.entries) % window
        if timer.entries == window:
            timer.head = (timer.head + 1) % window
        else:
            timer.entries += 1
        entry = w.windows[timer_class, job.tier, at]
        entry.time_s = clock.now
        entry.starvation_s = clock.now - job.enqueue_s
        timer.changed = 1


@jit
def book_progress(w: World, j: int) -> None:
    """Rule "Booking progress" of a running job, up to now, at the present network state."""
    clock = w.clock[0]
    job = w.jobs[j]
    if clock.now > job.since_s:
        iteration_s = w.iteration_s[clock.network_state, job.profile, job.tier]
        compute_s = w.profiles[job.profile].compute_s
        job.done = min(job.iterations, job.done + (clock.now - job.since_s) / iteration_s)
        job.communication_s += (clock.now - job.since_s) * ((iteration_s - compute_s) / iteration_s)


@jit
def book_stretch(w: World, j: int) -> None:
    """Rule "Losing GPUs": account for the stretch of running that ends now; the GPUs are released by the caller."""
    clock = w.clock[0]
    job = w.jobs[j]
    book_progress(w, j)
    held = clock.now - job.started_s
    job.running_s += held
    w.tier_s[j, job.tier] += held
    job.restore_s += min(held, job.restore_due_s)
    clock.events += 1


@jit
def log_stretch(w: World, j: int) -> None:
    """Write one log row for each machine of the stretch that ends now."""
    clock = w.clock[0]
    job = w.jobs[j]
    p = job.piece
    while p != NONE and len(w.log) > 0:
        row = w.log[clock.log_rows]
        row.job = j
        row.tier = job.tier
        row.machine = w.pieces[p].machine
        row.gpus = w.pieces[p].gpus
        row.start_s = job.started_s
        row.end_s = clock.now
        clock.log_rows += 1
        p = w.pieces[p].next_piece


@jit
def stop(w: World, j: int) -> None:
    """A preempted or moved job loses its unfinished iteration and leaves the finish heap."""
    job = w.jobs[j]
    book_stretch(w, j)
    whole = float(math.floor(job.done))
    iteration_s = w.iteration_s[w.clock[0].network_state, job.profile, job.tier]
    progress_s = max(0.0, w.clock[0].now - job.started_s - job.restore_due_s)
    job.lost_s += min(progress_s, (job.done - whole) * iteration_s)
    job.done = whole
    drop_from_heap(w, j)


@inlined
def complete_due(w: World) -> None:
    """Instant, part 1: completions by (finish_s, index)."""
    clock = w.clock[0]
    while clock.running > 0 and w.jobs[w.heap[0]].finish_s <= clock.now:
        j = w.heap[0]
        job = w.jobs[j]
        book_stretch(w, j)
        job.done = job.iterations
        log_stretch(w, j)
        release(w, j)
        drop_from_heap(w, j)
        job.status = FINISHED
        clock.finished += 1


@jit
def take_network_step(w: World) -> None:
    """Instant, part 2: running jobs change speed."""
    clock = w.clock[0]
    state = w.step_state[clock.next_step]
    clock.next_step += 1
    for slot in range(clock.running):
        j = w.heap[slot]
        job = w.jobs[j]
        old_s = w.iteration_s[clock.network_state, job.profile, job.tier]
        new_s = w.iteration_s[state, job.profile, job.tier]
        if old_s != new_s:
            book_progress(w, j)
            job.since_s = max(job.since_s, clock.now)
            job.finish_s = job.since_s + (job.iterations - job.done) * new_s
    clock.network_state = state
    for slot in range(clock.running // 2 - 1, -1, -1):
        sift_down(w.heap, w.jobs, slot, clock.running)


# === Rounds ===


@jit
def settle(heap: NDArray[np.int64], jobs: Rows, slot: int, end: int, worst_first: bool) -> None:
    """Sift down in heap[:end], a heap by rank with the best (or the worst) at its root."""
    j = heap[slot]
    while True:
        child = 2 * slot + 1
        if child >= end:
            break
        if child + 1 < end and precedes(jobs, heap[child + 1], heap[child]) != worst_first:
            child += 1
        if precedes(jobs, heap[child], j) == worst_first:
            break
        heap[slot] = heap[child]
        slot = child
    heap[slot] = j


@jit
def pop_ranked(heap: NDArray[np.int64], jobs: Rows, end: int, worst_first: bool) -> int:
    """Take the root of a rank heap of `end` entries."""
    j = heap[0]
    heap[0] = heap[end - 1]
    settle(heap, jobs, 0, end - 1, worst_first)
    return j


@jit
def rank(heap: NDArray[np.int64], jobs: Rows, end: int, worst_first: bool) -> None:
    """Make heap[:end] a heap by rank."""
    for slot in range(end // 2 - 1, -1, -1):
        settle(heap, jobs, slot, end, worst_first)


@jit
def promote(w: World) -> None:
    """Rule "Priority", DISCRETISED_LAS: queued jobs that waited long for what they ran go back to the first queue."""
    rules = w.rules[0]
    for b in range(w.rules[0].buckets):
        bucket = w.buckets[b]
        for position in range(bucket.tail):
            j = w.nodes[bucket.tree_start + bucket.capacity + position].job
            if j == NONE:
                continue
            job = w.jobs[j]
            service = job.gpus * job.running_s
            executed_s = (service - job.forgiven_gpu_s) / job.gpus
            if job.key > 0.0 and w.clock[0].now - job.enqueue_s >= rules.promote_factor * executed_s:
                job.forgiven_gpu_s = service
                set_key(w, j)
                set_leaf(w.buckets, w.nodes, w.jobs, b, position, j)


@jit
def first_waiting(w: World) -> int:
    """The first-served queued job, or NONE."""
    best = NONE
    for b in range(w.rules[0].buckets):
        if w.buckets[b].live > 0:
            j = w.nodes[w.buckets[b].tree_start + 1].job
            if j != NONE and (best == NONE or precedes(w.jobs, j, best)):
                best = j
    return best


@inlined
def claim(w: World) -> tuple[int, int]:
    """Rule "Preemption", the walk: fills `claimants` and `claimed`; returns how many of each.

    Claimants are out of their trees afterwards, so that the walk finds the next one.
    """
    rules = w.rules[0]
    clock = w.clock[0]
    keep = 1.0 - clock.preemption_margin
    waiting = first_waiting(w)
    best_key = w.jobs[waiting].key
    pool = 0
    for slot in range(clock.running):
        j = w.heap[slot]
        job = w.jobs[j]
        if clock.now - job.started_s >= rules.quantum_s:
            set_key(w, j)
            if best_key < keep * job.key:
                w.pool[pool] = j
                pool += 1
    if pool == 0:
        return 0, 0
    rank(w.pool, w.jobs, pool, True)
    free = clock.free
    claimants = 0
    claimed = 0
    while waiting != NONE:
        job = w.jobs[waiting]
        mine = claimed
        while free < job.gpus and pool > 0 and job.key < keep * w.jobs[w.pool[0]].key:
            worst = pop_ranked(w.pool, w.jobs, pool, True)
            pool -= 1
            w.claimed[mine] = worst
            mine += 1
            free += w.jobs[worst].gpus
        if free < job.gpus:
            break
        claimed = mine
        free -= job.gpus
        w.claimants[claimants] = waiting
        claimants += 1
        set_leaf(w.buckets, w.nodes, w.jobs, job.bucket, job.slot, NONE)
        if claimants == len(w.claimants):
            break
        waiting = first_waiting(w)
    return claimants, claimed


@jit
def gpus_still_free(w: World, j: int) -> bool:
    """Whether a claimed job's own GPUs, as counts per machine, are all free."""
    p = w.jobs[j].piece
    while p != NONE:
        if w.machines[w.pieces[p].machine].free < w.pieces[p].gpus:
            return False
        p = w.pieces[p].next_piece
    return True


@jit
def lend(w: World, j: int, sign: int) -> None:
    """Count a claimed job's GPUs as free (sign 1) or as its own again (sign -1), leaving its pieces in place."""
    p = w.jobs[j].piece
    while p != NONE:
        machine = w.pieces[p].machine
        row = w.machines[machine]
        if row.free == w.rules[0].gpus_per_machine:
            row.affinity = w.jobs[j].gpus
        set_free(w, machine, row.free + sign * w.pieces[p].gpus)
        p = w.pieces[p].next_piece


@jit
def preempt(w: World) -> None:
    """Rule "Preemption", after the walk."""
    clock = w.clock[0]
    claimants, claimed = claim(w)
    for i in range(claimed):
        w.jobs[w.claimed[i]].status = CLAIMED
        lend(w, w.claimed[i], 1)
    for i in range(claimants):
        j = w.claimants[i]
        job = w.jobs[j]
        if claimed > 0 and accepts(w, j, tier_free(w, job.gpus)):
            start_queued(w, j)
        else:
            set_leaf(w.buckets, w.nodes, w.jobs, job.bucket, job.slot, j)
    for i in range(claimed - 1, -1, -1):
        j = w.claimed[i]
        job = w.jobs[j]
        job.status = RUNNING
        if gpus_still_free(w, j):
            lend(w, j, -1)
            continue
        log_stretch(w, j)
        stop(w, j)
        while job.piece != NONE:
            p = job.piece
            job.piece = w.pieces[p].next_piece
            w.pieces[p].next_piece = clock.free_piece
            clock.free_piece = p
        job.preemptions += 1
        enqueue(w, j)


@jit
def saves_time(w: World, j: int) -> bool:
    """Rule "Placement upgrade": whether running job j may and should move to what is free for it now."""
    rules = w.rules[0]
    clock = w.clock[0]
    job = w.jobs[j]
    if clock.now - job.started_s < rules.quantum_s or w.buckets[job.bucket].acceptance != BY_TIMERS:
        return False
    offer = tier_free(w, job.gpus)
    if offer == NONE or offer >= job.tier:
        return False
    done = job.done
    if clock.now > job.since_s:
        iteration_s = w.iteration_s[clock.network_state, job.profile, job.tier]
        done = min(job.iterations, done + (clock.now - job.since_s) / iteration_s)
    new_s = w.iteration_s[clock.network_state, job.profile, offer]
    return rules.restore_s + (job.iterations - math.floor(done)) * new_s < job.finish_s - clock.now


@jit
def upgrade(w: World) -> bool:
    """Rule "Placement upgrade"; whether any job moved. Keys and ranking are made only if some job would move."""
    clock = w.clock[0]
    pool = 0
    wanted = False
    for slot in range(clock.running):
        j = w.heap[slot]
        if w.jobs[j].tier > w.jobs[j].best_tier:
            w.pool[pool] = j
            pool += 1
            wanted = wanted or saves_time(w, j)
    if not wanted:
        return False
    for i in range(pool):
        if w.jobs[w.pool[i]].started_s < clock.now:
            set_key(w, w.pool[i])
    rank(w.pool, w.jobs, pool, False)
    while pool > 0:
        j = pop_ranked(w.pool, w.jobs, pool, False)
        pool -= 1
        if saves_time(w, j):
            move(w, j)
    return True


@jit
def move(w: World, j: int) -> None:
    """Move running job j to the tier that is free for it; the new GPUs are chosen before its own are released."""
    clock = w.clock[0]
    job = w.jobs[j]
    log_stretch(w, j)
    stop(w, j)
    old = job.piece
    job.piece = NONE
    job.moves += 1
    start(w, j, tier_free(w, job.gpus))
    while old != NONE:
        p = old
        piece = w.pieces[p]
        set_free(w, piece.machine, w.machines[piece.machine].free + piece.gpus)
        old = piece.next_piece
        piece.next_piece = clock.free_piece
        clock.free_piece = p


@jit
def window_timer(w: World, timer_class: int, tier: int) -> float:
    """Mean + k standard deviations of the starvation in a window, oldest entry first; the default if it is empty."""
    timer = w.timers[timer_class, tier]
    timer.mean_s = 0.0
    timer.deviation_s = 0.0
    if timer.entries == 0:
        return timer.default_s
    window = w.windows.shape[2]
    wrap = min(timer.entries, window - timer.head)  # entries before the ring begins again
    total = 0.0
    for i in range(timer.head, timer.head + wrap):
        total += w.windows[timer_class, tier, i].starvation_s
    for i in range(timer.entries - wrap):
        total += w.windows[timer_class, tier, i].starvation_s
    mean = total / timer.entries
    total = 0.0
    for i in range(timer.head, timer.head + wrap):
        difference = w.windows[timer_class, tier, i].starvation_s - mean
        total += difference * difference
    for i in range(timer.entries - wrap):
        difference = w.windows[timer_class, tier, i].starvation_s - mean
        total += difference * difference
    timer.mean_s = mean
    timer.deviation_s = math.sqrt(total / timer.entries)
    return max(0.0, mean + w.rules[0].tuner_std_factor * timer.deviation_s)


@jit
def apply_tuned(w: World, timer_class: int) -> bool:
    """Put the tuned timers of a class in force, by factor and offset; whether one changed."""
    changed = False
    least_s = 0.0
    for tier in range(2):
        timer = w.timers[timer_class, tier]
        timer_s = max(least_s, timer.tuned_s * timer.factor + timer.offset_s)
        changed = changed or timer.timer_s != timer_s
        timer.timer_s = timer_s
        least_s = timer_s
    return changed


@jit
def tune(w: World) -> bool:
    """Rule "Auto-tuner"; whether any timer in force changed."""
    window = w.windows.shape[2]
    changed = False
    for timer_class in range(len(w.timers)):
        news = False
        for tier in range(2):
            timer = w.timers[timer_class, tier]
            while (
                timer.entries > 0
                and w.clock[0].now - w.windows[timer_class, tier, timer.head].time_s > w.rules[0].tuner_max_age_s
            ):
                timer.head = (timer.head + 1) % window
                timer.entries -= 1
                timer.changed = 1
            news = news or timer.changed == 1
            timer.changed = 0
        if news:
            machine_s = window_timer(w, timer_class, 0)
            w.timers[timer_class, 0].tuned_s = machine_s
            w.timers[timer_class, 1].tuned_s = max(machine_s, window_timer(w, timer_class, 1))
            if w.rules[0].auto_tuner == 1:
                changed = apply_tuned(w, timer_class) or changed
    return changed


@jit
def refresh_timers(w: World) -> None:
    """Find all ready prefixes anew, after timers changed."""
    for b in range(w.rules[0].buckets):
        if w.buckets[b].live > 0:
            find_ready(w, b)


# === The event loop ===


@jit
def next_instant(w: World) -> float:
    """Rule "Time": the earliest thing that will happen."""
    clock = w.clock[0]
    t = clock.next_expiry_s
    if clock.running > 0:
        t = min(t, w.jobs[w.heap[0]].finish_s)
    if clock.next_step < w.rules[0].steps:
        t = min(t, w.step_s[clock.next_step])
    if clock.next_job < w.rules[0].jobs:
        t = min(t, w.jobs[clock.next_job].submit_s)
    if w.rules[0].has_rounds == 1:
        t = min(t, clock.round_index * w.rules[0].round_s)
    return t


@inlined
def begin_instant(w: World) -> None:
    """An instant up to the scheduling pass, in the order of rule "Time"."""
    rules = w.rules[0]
    clock = w.clock[0]
    clock.instants += 1
    complete_due(w)
    if clock.next_step < rules.steps and w.step_s[clock.next_step] <= clock.now:
        take_network_step(w)
    while clock.next_job < rules.jobs and w.jobs[clock.next_job].submit_s <= clock.now:
        clock.next_job += 1
        clock.events += 1
        enqueue(w, clock.next_job - 1)
    clock.at_round = 0
    if rules.has_rounds == 1 and clock.round_index * rules.round_s <= clock.now:
        clock.at_round = 1
        clock.events += 1
        while clock.round_index * rules.round_s <= clock.now:
            clock.round_index += 1
        if rules.order == DISCRETISED_LAS and rules.promote_factor < math.inf and clock.queued > 0:
            promote(w)
        if rules.preemption == 1 and clock.queued > 0:
            preempt(w)
    clock.phase = FIRST_PASS


@inlined
def finish_instant(w: World) -> bool:
    """The rest of the instant; True when it stops at a question to the agent."""
    rules = w.rules[0]
    clock = w.clock[0]
    while clock.phase != BETWEEN:
        if clock.phase == UPGRADES:
            clock.phase = SECOND_PASS if rules.upgrade == 1 and upgrade(w) else TUNING
        elif clock.phase == TUNING:
            clock.phase = BETWEEN
            if rules.auto_tuner > 0 and tune(w):
                refresh_timers(w)
                clock.phase = LAST_PASS
        else:
            if scheduling_pass(w):
                return True
            if clock.phase == FIRST_PASS and clock.at_round == 1:
                clock.phase = UPGRADES
            elif clock.phase == SECOND_PASS:
                clock.phase = TUNING
            else:
                clock.phase = BETWEEN
    return False


@jit
def answer(w: World, accept: bool) -> None:
    """Rule "Asking": the agent's answer to the offer asked about."""
    clock = w.clock[0]
    job = w.jobs[clock.asked_job]
    if accept:
        start_queued(w, clock.asked_job)
    else:
        job.held_offer = clock.asked_tier
        job.held_round = clock.round_index
    clock.asked_job = NONE


@jit
def pass_time(w: World, until_s: float) -> None:
    """Move the clock, counting the time that jobs spend in the system."""
    clock = w.clock[0]
    clock.job_seconds += (clock.next_job - clock.finished) * (until_s - clock.now)
    clock.now = until_s


@jit
def advance(w: World, until_s: float, limit: int) -> int:
    """Handle instants up to and including until_s, at most `limit` of them; returns why it came back."""
    rules = w.rules[0]
    clock = w.clock[0]
    if clock.stale == 1:
        if rules.auto_tuner == 1:
            for timer_class in range(len(w.timers)):
                apply_tuned(w, timer_class)
        refresh_timers(w)
        clock.stale = 0
        if clock.phase == BETWEEN:
            clock.phase = LAST_PASS
    for _ in range(limit):
        if finish_instant(w):
            return ASKING
        if clock.finished == rules.jobs:
            return DONE
        if len(w.log) > 0 and clock.log_rows + 3 * rules.gpus > len(w.log):
            return LOG_FULL
        t = next_instant(w)
        if t > until_s:
            pass_time(w, until_s)
            return ADVANCED
        if t == math.inf:
            return STUCK
        pass_time(w, t)
        begin_instant(w)
    if finish_instant(w):
        return ASKING
    return DONE if clock.finished == rules.jobs else LIMIT


@jit
def world_row(worlds: World, i: int) -> World:
    """One simulator of many that lie side by side (`ddl_gym.world.allocate`)."""
    return World(
        worlds.rules[i],
        worlds.clock[i],
        worlds.jobs[i],
        worlds.buckets[i],
        worlds.nodes[i],
        worlds.enqueue_s[i],
        worlds.profiles[i],
        worlds.iteration_s[i],
        worlds.step_s[i],
        worlds.step_state[i],
        worlds.timers[i],
        worlds.windows[i],
        worlds.machines[i],
        worlds.racks[i],
        worlds.rack_machines[i],
        worlds.machine_counts[i],
        worlds.rack_counts[i],
        worlds.pieces[i],
        worlds.heap[i],
        worlds.tier_s[i],
        worlds.las_edges[i],
        worlds.service_edges[i],
        worlds.pool[i],
        worlds.claimants[i],
        worlds.claimed[i],
        worlds.log[i],
    )


@jit
def answer_rows(worlds: World, first: int, end: int, accept: NDArray[np.bool_]) -> None:
    """Answer the offers that simulators [first, end) ask about."""
    for i in range(first, end):
        if worlds.clock[i, 0].asked_job != NONE:
            answer(world_row(worlds, i), accept[i])


@jit
def advance_rows(
    worlds: World,
    first: int,
    end: int,
    until_s: NDArray[np.float64],
    status: NDArray[np.int64],
    spent: NDArray[np.float64],
) -> None:
    """Advance simulators [first, end) of many, each to its own time.

    Why each came back goes into `status` (N,), what it took is added to `spent` (N, 2): job-seconds in the system and seconds.
    """
    for i in range(first, end):
        clock = worlds.clock[i, 0]
        spent[i, 0] -= clock.job_seconds
        spent[i, 1] -= clock.now
        status[i] = advance(world_row(worlds, i), until_s[i], ROW_LIMIT)
        spent[i, 0] += clock.job_seconds
        spent[i, 1] += clock.now
