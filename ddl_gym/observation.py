"""What does an agent see? Named features of fixed number, bounded and relative to the cluster, so that a policy transfers.

Counts and times are squashed to [0, 1) by x / (x + scale). The auto-tuner, the delay scheduler and the preemption rule need nothing that is
not here. `feature_names` gives the names in order, `GLOBAL`, `BY_CLASS` and `OFFER` what they mean.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numba import njit
from numpy.typing import NDArray

from ddl_gym.kernel import World, world_row
from ddl_gym.policies import Policy

# Of the kernel only `world_row` is called: numba would not notice edits of compiled code in another module, but that one function is
# decided by World's fields, which are part of its signature.
NONE = -1
TIME_SCALE_S = 1_800.0
SERVICE_SCALE_GPU_S = 36_000.0

GLOBAL: dict[str, str] = {
    "submitted": "jobs submitted / jobs of the episode",
    "finished": "jobs finished / jobs of the episode",
    "free": "free GPUs / GPUs",
    "free.machine": "most free GPUs on one machine / GPUs of a machine",
    "free.rack": "most free GPUs in one rack / GPUs of a rack",
    "machines.full": "machines without a free GPU / machines",
    "machines.quarter": "machines with up to a quarter of their GPUs free / machines",
    "machines.half": "up to a half",
    "machines.most": "up to three quarters",
    "machines.almost": "more, but not idle",
    "machines.idle": "idle machines / machines",
    "rack_free.min": "least free GPUs in one rack / GPUs of a rack",
    "rack_free.mean": "mean over racks",
    "running.machine": "GPUs of jobs running at MACHINE / GPUs",
    "running.rack": "at RACK",
    "running.network": "at NETWORK",
    "running.worse": "GPUs of jobs running at a tier worse than their best / GPUs",
    "queued.jobs": "queued jobs, squashed with scale 10",
    "queued.gpus": "GPUs that queued jobs ask for / GPUs, squashed with scale 1",
    "arrivals": "jobs submitted in the last interval, squashed with scale 10",
    "completions": "jobs finished in the last interval, squashed with scale 10",
    "slowdown.machine": "iteration time now / at the best tier without congestion - 1, GPU-weighted mean of jobs at MACHINE, scale 1",
    "slowdown.rack": "at RACK",
    "slowdown.network": "at NETWORK",
    "measured.machine": "1 if a job runs at MACHINE, so that its slowdown is measured, else 0",
    "measured.rack": "at RACK",
    "measured.network": "at NETWORK",
    "sensitivity.queued": "iteration time at NETWORK now / at the best tier without congestion - 1, mean of queued jobs, scale 1",
    "sensitivity.running": "mean of running jobs",
    "margin": "preemption margin in force",
}
BY_CLASS: dict[str, str] = {
    "queued.jobs": "queued jobs of the class, squashed with scale 10",
    "queued.gpus": "GPUs they ask for / GPUs, squashed with scale 1",
    "starvation.max": "longest starvation of its queued jobs, s, squashed with scale 1,800",
    "starvation.mean": "mean",
    "running.gpus": "GPUs of its running jobs (class as when they were queued) / GPUs",
    "timer.machine": "machine timer in force, s, squashed with scale 1,800; infinity is 1",
    "timer.rack": "rack timer in force",
    "tuned.machine": "the auto-tuner's machine timer, likewise",
    "tuned.rack": "the auto-tuner's rack timer",
    "window.machine": "entries of the auto-tuner's window for MACHINE / its length",
    "window.rack": "for RACK",
    "window_mean.machine": "mean starvation in that window at the last round, s, squashed with scale 1,800",
    "window_mean.rack": "for RACK",
    "window_deviation.machine": "its standard deviation, likewise",
    "window_deviation.rack": "for RACK",
}
OFFER: dict[str, str] = {
    "asked": "1 if an offer is asked about; the others are 0 if none is",
    "offer.rack": "1 if the offer is RACK",
    "offer.network": "1 if the offer is NETWORK",
    "offer.gpus": "demand / GPUs",
    "offer.machines": "demand / GPUs of a machine, squashed with scale 1",
    "offer.loss": "iteration time at the offered tier now / at the best tier without congestion - 1, squashed with scale 1",
    "offer.starvation": "s, squashed with scale 1,800",
    "offer.service": "attained service, GPU-s, squashed with scale 36,000",
    "offer.preemptions": "times it was preempted, squashed with scale 1",
    "offer.tuned.machine": "the auto-tuner's machine timer of its class, s, squashed with scale 1,800",
    "offer.tuned.rack": "the auto-tuner's rack timer",
}
_G, _K = len(GLOBAL), len(BY_CLASS)


def feature_names(policy: Policy, job_offer: bool = False) -> tuple[str, ...]:
    """Names of the F features, in order; F depends on the policy's classes alone."""
    by_class = [f"class{c}.{name}" for c in range(policy.classes) for name in BY_CLASS]
    return (*GLOBAL, *by_class, *(OFFER if job_offer else ()))


def observation_space(policy: Policy, job_offer: bool = False) -> spaces.Box:
    """Box(0, 1, (F,), float32)."""
    return spaces.Box(0.0, 1.0, (len(feature_names(policy, job_offer)),), np.float32)


def tuned_timers(observation: NDArray[np.float32], policy: Policy) -> NDArray[np.float64]:
    """(..., C, 2) the auto-tuner's timers in seconds, to float32 precision."""
    return _timers(observation, policy, "tuned.machine")


def timers_in_force(observation: NDArray[np.float32], policy: Policy) -> NDArray[np.float64]:
    """(..., C, 2) the timers in force in seconds, to float32 precision."""
    return _timers(observation, policy, "timer.machine")


def _timers(observation: NDArray[np.float32], policy: Policy, first: str) -> NDArray[np.float64]:
    end = _G + policy.classes * _K
    blocks = np.asarray(observation, np.float64)[..., _G:end].reshape(*observation.shape[:-1], policy.classes, _K)
    at = list(BY_CLASS).index(first)
    squashed = blocks[..., at : at + 2]
    with np.errstate(divide="ignore"):
        return TIME_SCALE_S * squashed / (1.0 - squashed)


_options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
jit = njit(**_options)


@jit
def squash(x: float, scale: float) -> float:
    """Map [0, inf] to [0, 1] by x / (x + scale)."""
    if x == np.inf:
        return 1.0
    return x / (x + scale)


@jit
def _observe(
    w: World,
    before: NDArray[np.float64],
    out: NDArray[np.float32],
    i: int,
) -> None:
    """Write the features of one simulator into row i of out."""
    rules = w.rules[0]
    clock = w.clock[0]
    gpus = float(rules.gpus)
    classes = len(w.timers)
    base = _G
    width = _K
    for f in range(out.shape[1]):
        out[i, f] = 0.0

    # Capacity.
    per_machine = rules.gpus_per_machine
    machines = float(len(w.machines))
    out[i, 0] = clock.next_job / rules.jobs
    out[i, 1] = clock.finished / rules.jobs
    out[i, 2] = clock.free / gpus
    out[i, 3] = clock.machine_top / per_machine
    out[i, 4] = clock.rack_top / rules.gpus_per_rack
    for free in range(per_machine + 1):
        if free == 0:
            column = 5
        elif free == per_machine:
            column = 10
        elif 4 * free <= per_machine:
            column = 6
        elif 2 * free <= per_machine:
            column = 7
        elif 4 * free <= 3 * per_machine:
            column = 8
        else:
            column = 9
        out[i, column] += w.machine_counts[free] / machines
    least = rules.gpus_per_rack
    for r in range(rules.racks):
        least = min(least, w.racks[r].free)
    out[i, 11] = least / rules.gpus_per_rack
    out[i, 12] = clock.free / gpus

    # Running jobs.
    slow_0 = slow_1 = slow_2 = 0.0
    held_0 = held_1 = held_2 = worse = 0.0
    sensitivity = 0.0
    for slot in range(clock.running):
        job = w.jobs[w.heap[slot]]
        ideal_s = w.profiles[job.profile].ideal_s
        loss = w.iteration_s[clock.network_state, job.profile, job.tier] / ideal_s - 1.0
        sensitivity += w.iteration_s[clock.network_state, job.profile, 2] / ideal_s - 1.0
        if job.tier == 0:
            held_0 += job.gpus
            slow_0 += job.gpus * loss
        elif job.tier == 1:
            held_1 += job.gpus
            slow_1 += job.gpus * loss
        else:
            held_2 += job.gpus
            slow_2 += job.gpus * loss
        if job.tier > job.best_tier:
            worse += job.gpus
        out[i, base + w.buckets[job.bucket].timer_class * width + 4] += job.gpus / gpus
    out[i, 13] = held_0 / gpus
    out[i, 14] = held_1 / gpus
    out[i, 15] = held_2 / gpus
    out[i, 16] = worse / gpus
    if held_0 > 0.0:
        out[i, 21] = squash(max(0.0, slow_0 / held_0), 1.0)
        out[i, 24] = 1.0
    if held_1 > 0.0:
        out[i, 22] = squash(max(0.0, slow_1 / held_1), 1.0)
        out[i, 25] = 1.0
    if held_2 > 0.0:
        out[i, 23] = squash(max(0.0, slow_2 / held_2), 1.0)
        out[i, 26] = 1.0
    if clock.running > 0:
        out[i, 28] = squash(max(0.0, sensitivity / clock.running), 1.0)

    # Queued jobs; the sums stand in `out` until they are squashed below.
    sensitivity = 0.0
    queued_gpus = 0.0
    for b in range(rules.buckets):
        bucket = w.buckets[b]
        if bucket.live == 0:
            continue
        column = base + bucket.timer_class * width
        for position in range(bucket.tail):
            j = w.nodes[bucket.tree_start + bucket.capacity + position].job
            if j == NONE:
                continue
            job = w.jobs[j]
            starvation_s = clock.now - job.enqueue_s
            queued_gpus += job.gpus
            out[i, column] += 1.0
            out[i, column + 1] += job.gpus / gpus
            out[i, column + 2] = max(out[i, column + 2], starvation_s)
            out[i, column + 3] += starvation_s
            sensitivity += w.iteration_s[clock.network_state, job.profile, 2] / w.profiles[job.profile].ideal_s - 1.0
    out[i, 17] = squash(float(clock.queued), 10.0)
    out[i, 18] = squash(queued_gpus / gpus, 1.0)
    out[i, 19] = squash(max(0.0, clock.next_job - before[i, 0]), 10.0)
    out[i, 20] = squash(max(0.0, clock.finished - before[i, 1]), 10.0)
    if clock.queued > 0:
        out[i, 27] = squash(max(0.0, sensitivity / clock.queued), 1.0)
    out[i, 29] = clock.preemption_margin

    window = float(w.windows.shape[2])
    for c in range(classes):
        column = base + c * width
        count = out[i, column]
        if count > 0:
            out[i, column + 3] = squash(out[i, column + 3] / count, TIME_SCALE_S)
        out[i, column] = squash(count, 10.0)
        out[i, column + 1] = squash(out[i, column + 1], 1.0)
        out[i, column + 2] = squash(out[i, column + 2], TIME_SCALE_S)
        for tier in range(2):
            timer = w.timers[c, tier]
            out[i, column + 5 + tier] = squash(timer.timer_s, TIME_SCALE_S)
            out[i, column + 7 + tier] = squash(timer.tuned_s, TIME_SCALE_S)
            out[i, column + 9 + tier] = timer.entries / window
            out[i, column + 11 + tier] = squash(timer.mean_s, TIME_SCALE_S)
            out[i, column + 13 + tier] = squash(timer.deviation_s, TIME_SCALE_S)

    column = base + classes * width
    if out.shape[1] > column and clock.asked_job != NONE:
        job = w.jobs[clock.asked_job]
        loss = w.iteration_s[clock.network_state, job.profile, clock.asked_tier] / w.profiles[job.profile].ideal_s - 1.0
        timer_class = w.buckets[job.bucket].timer_class
        out[i, column] = 1.0
        out[i, column + clock.asked_tier] = 1.0
        out[i, column + 3] = job.gpus / gpus
        out[i, column + 4] = squash(job.gpus / per_machine, 1.0)
        out[i, column + 5] = squash(max(0.0, loss), 1.0)
        out[i, column + 6] = squash(clock.now - job.enqueue_s, TIME_SCALE_S)
        out[i, column + 7] = squash(job.gpus * job.running_s, SERVICE_SCALE_GPU_S)
        out[i, column + 8] = squash(float(job.preemptions), 1.0)
        out[i, column + 9] = squash(w.timers[timer_class, 0].tuned_s, TIME_SCALE_S)
        out[i, column + 10] = squash(w.timers[timer_class, 1].tuned_s, TIME_SCALE_S)


@jit
def observe_rows(
    worlds: World,
    first: int,
    end: int,
    before: NDArray[np.float64],
    out: NDArray[np.float32],
) -> None:
    """Observe simulators [first, end) of many into rows of `out` (N, F).

    `before` (N, 2) holds the jobs submitted and finished at the previous decision.
    """
    for i in range(first, end):
        _observe(world_row(worlds, i), before, out, i)
