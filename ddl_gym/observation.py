"""What does an agent see? Named features of fixed number, bounded and relative to the cluster, so that a policy transfers.

Every feature lies in [0, 1]; counts and times are squashed to it by x / (x + scale). The auto-tuner, the delay scheduler and the
preemption rule need nothing that is not here. `feature_names` gives the names in order, `GLOBAL`, `BY_CLASS` and `OFFER` what they mean.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numba import njit
from numpy.typing import NDArray

from ddl_gym.cluster import NONE
from ddl_gym.kernel import World
from ddl_gym.policies import Policy

COUNT_SCALE = 10.0
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
# Columns of the features above, in their order: of the globals in a row, of the others in the block of a class or of the offer.
# fmt: off
(
    SUBMITTED, FINISHED, FREE, FREE_MACHINE, FREE_RACK,
    FULL, QUARTER, HALF, MOST, ALMOST, IDLE, RACK_LEAST, RACK_MEAN,
    RUNNING, _, _, WORSE, QUEUED_JOBS, QUEUED_GPUS, ARRIVALS, COMPLETIONS,
    SLOWDOWN, _, _, MEASURED, _, _, SENSITIVITY_QUEUED, SENSITIVITY_RUNNING, MARGIN,
) = range(len(GLOBAL))
(
    CLASS_JOBS, CLASS_GPUS, LONGEST, MEAN, CLASS_RUNNING,
    TIMER, _, TUNED, _, FILL, _, WINDOW_MEAN, _, WINDOW_DEVIATION, _,
) = range(len(BY_CLASS))
(
    ASKED, _, _, DEMAND, MACHINES, LOSS, STARVATION, SERVICE, PREEMPTIONS, OFFER_TUNED, _,
) = range(len(OFFER))
# fmt: on
_G, _K = len(GLOBAL), len(BY_CLASS)


def feature_names(policy: Policy, job_offer: bool = False) -> tuple[str, ...]:
    """Names of the F features, in order; F depends on the policy's classes alone."""
    by_class = [f"class{c}.{name}" for c in range(policy.classes) for name in BY_CLASS]
    return (*GLOBAL, *by_class, *(OFFER if job_offer else ()))


def observation_space(policy: Policy, job_offer: bool = False) -> spaces.Box:
    """Box(0, 1, (F,), float32)."""
    return spaces.Box(0.0, 1.0, (len(feature_names(policy, job_offer)),), np.float32)


def feature_index(policy: Policy, name: str) -> int:
    """Column of a feature by its name in `feature_names`; ValueError if there is none of that name."""
    names = feature_names(policy, job_offer=True)
    if name not in names:
        raise ValueError(
            f"unknown feature {name!r}; known: {', '.join((*GLOBAL, *OFFER))} and class0. to "
            f"class{policy.classes - 1}. with {', '.join(BY_CLASS)}"
        )
    return names.index(name)


def class_features(observation: NDArray[np.float32], policy: Policy, name: str) -> NDArray[np.float32]:
    """(..., C) view of one feature of every class, by its name in BY_CLASS, in an observation (..., F)."""
    first = feature_index(policy, f"class0.{name}")
    return observation[..., first : _G + policy.classes * _K : _K]


def tuned_timers(observation: NDArray[np.float32], policy: Policy) -> NDArray[np.float64]:
    """(..., C, 2) the auto-tuner's timers in seconds, of an observation (..., F); see `unsquash` for the precision."""
    return _timers_s(observation, policy, "tuned")


def timers_in_force(observation: NDArray[np.float32], policy: Policy) -> NDArray[np.float64]:
    """(..., C, 2) the timers in force in seconds, of an observation (..., F); see `unsquash` for the precision."""
    return _timers_s(observation, policy, "timer")


def _timers_s(observation: NDArray[np.float32], policy: Policy, which: str) -> NDArray[np.float64]:
    tiers = [class_features(observation, policy, f"{which}.{tier}") for tier in ("machine", "rack")]
    return unsquash(np.stack(tiers, axis=-1), TIME_SCALE_S)


def unsquash(squashed: NDArray[np.float32], scale: float) -> NDArray[np.float64]:
    """What was squashed with that scale.

    The relative error is up to 1e-7 (1 + x / scale): with a scale of 1,800 s a millionth at four hours, five millionths at a day. What is
    many million times the scale comes back as infinity.
    """
    exact = np.asarray(squashed, np.float64)
    with np.errstate(divide="ignore"):
        return scale * exact / (1.0 - exact)


# === The compiled functions ===

# They call nothing of the kernel: numba's cache does not notice edits in another module. Sums of counts are exact in float32, and all
# arithmetic on features read back from `out` is in float64, so that the result is the same with and without the compiler.
_options: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
jit = njit(**_options)


@jit
def squash(x: float, scale: float) -> float:
    """Map [0, inf] to [0, 1] by x / (x + scale); what rounding put below 0 counts as 0."""
    x = np.float64(x)
    if x == np.inf:
        return 1.0
    return max(0.0, x) / (max(0.0, x) + scale)


@jit
def _observe_cluster(worlds: World, i: int, before: NDArray[np.float64], out: NDArray[np.float32]) -> None:
    """Progress, free GPUs, the margin."""
    rules = worlds.rules[i, 0]
    clock = worlds.clock[i, 0]
    out[i, SUBMITTED] = clock.next_job / rules.jobs
    out[i, FINISHED] = clock.finished / rules.jobs
    out[i, ARRIVALS] = squash(clock.next_job - before[i, 0], COUNT_SCALE)
    out[i, COMPLETIONS] = squash(clock.finished - before[i, 1], COUNT_SCALE)
    out[i, MARGIN] = clock.preemption_margin
    out[i, FREE] = clock.free / rules.gpus
    out[i, FREE_MACHINE] = clock.machine_top / rules.gpus_per_machine
    out[i, FREE_RACK] = clock.rack_top / rules.gpus_per_rack
    least = rules.gpus_per_rack
    for rack in range(rules.racks):
        least = min(least, worlds.racks[i, rack].free)
    out[i, RACK_LEAST] = least / rules.gpus_per_rack
    out[i, RACK_MEAN] = clock.free / rules.gpus
    for free in range(rules.gpus_per_machine + 1):
        if free == 0:
            column = FULL
        elif free == rules.gpus_per_machine:
            column = IDLE
        elif 4 * free <= rules.gpus_per_machine:
            column = QUARTER
        elif 2 * free <= rules.gpus_per_machine:
            column = HALF
        elif 4 * free <= 3 * rules.gpus_per_machine:
            column = MOST
        else:
            column = ALMOST
        out[i, column] += worlds.machine_counts[i, free]
    for column in range(FULL, IDLE + 1):
        out[i, column] /= rules.racks * rules.machines_per_rack


@jit
def _observe_running(worlds: World, i: int, out: NDArray[np.float32]) -> None:
    """Who holds the GPUs, and how the network treats them."""
    gpus = worlds.rules[i, 0].gpus
    clock = worlds.clock[i, 0]
    jobs, heap, profiles = worlds.jobs[i], worlds.heap[i], worlds.profiles[i]
    iteration_s = worlds.iteration_s[i, clock.network_state]
    sensitivity = 0.0
    for slot in range(clock.running):
        job = jobs[heap[slot]]
        ideal_s = profiles[job.profile].ideal_s
        sensitivity += iteration_s[job.profile, 2] / ideal_s - 1.0
        out[i, RUNNING + job.tier] += job.gpus
        out[i, SLOWDOWN + job.tier] += job.gpus * (iteration_s[job.profile, job.tier] / ideal_s - 1.0)
        if job.tier > job.best_tier:
            out[i, WORSE] += job.gpus
        out[i, _G + worlds.buckets[i, job.bucket].timer_class * _K + CLASS_RUNNING] += job.gpus
    if clock.running > 0:
        out[i, SENSITIVITY_RUNNING] = squash(sensitivity / clock.running, 1.0)
    for tier in range(3):
        held = np.float64(out[i, RUNNING + tier])
        if held > 0.0:
            out[i, SLOWDOWN + tier] = squash(out[i, SLOWDOWN + tier] / held, 1.0)
            out[i, MEASURED + tier] = 1.0
        out[i, RUNNING + tier] = held / gpus
    out[i, WORSE] = np.float64(out[i, WORSE]) / gpus


@jit
def _observe_queued(worlds: World, i: int, out: NDArray[np.float32]) -> None:
    """Who waits, for how many GPUs and how long; the jobs of a bucket are alike but for their models."""
    gpus = worlds.rules[i, 0].gpus
    clock = worlds.clock[i, 0]
    jobs, nodes, profiles = worlds.jobs[i], worlds.nodes[i], worlds.profiles[i]
    iteration_s = worlds.iteration_s[i, clock.network_state]
    sensitivity = 0.0
    for b in range(worlds.rules[i, 0].buckets):
        bucket = worlds.buckets[i, b]
        if bucket.live == 0:
            continue
        longest_s = sum_s = 0.0
        for leaf in range(bucket.tree_start + bucket.capacity, bucket.tree_start + bucket.capacity + bucket.tail):
            if nodes[leaf].job != NONE:
                job = jobs[nodes[leaf].job]
                longest_s = max(longest_s, clock.now - job.enqueue_s)
                sum_s += clock.now - job.enqueue_s
                sensitivity += iteration_s[job.profile, 2] / profiles[job.profile].ideal_s - 1.0
        base = _G + bucket.timer_class * _K
        out[i, base + CLASS_JOBS] += bucket.live
        out[i, base + CLASS_GPUS] += bucket.live * bucket.gpus
        out[i, base + LONGEST] = max(out[i, base + LONGEST], longest_s)
        out[i, base + MEAN] += sum_s
        out[i, QUEUED_GPUS] += bucket.live * bucket.gpus
    out[i, QUEUED_JOBS] = squash(clock.queued, COUNT_SCALE)
    out[i, QUEUED_GPUS] = squash(np.float64(out[i, QUEUED_GPUS]) / gpus, 1.0)
    if clock.queued > 0:
        out[i, SENSITIVITY_QUEUED] = squash(sensitivity / clock.queued, 1.0)


@jit
def _observe_classes(worlds: World, i: int, out: NDArray[np.float32]) -> None:
    """Timers and windows; and the sums over the jobs of a class become features."""
    gpus = worlds.rules[i, 0].gpus
    window = worlds.windows.shape[3]
    for c in range(worlds.timers.shape[1]):
        base = _G + c * _K
        queued = np.float64(out[i, base + CLASS_JOBS])
        if queued > 0.0:
            out[i, base + MEAN] = squash(out[i, base + MEAN] / queued, TIME_SCALE_S)
        out[i, base + CLASS_JOBS] = squash(queued, COUNT_SCALE)
        out[i, base + CLASS_GPUS] = squash(np.float64(out[i, base + CLASS_GPUS]) / gpus, 1.0)
        out[i, base + LONGEST] = squash(out[i, base + LONGEST], TIME_SCALE_S)
        out[i, base + CLASS_RUNNING] = np.float64(out[i, base + CLASS_RUNNING]) / gpus
        for tier in range(2):
            timer = worlds.timers[i, c, tier]
            out[i, base + TIMER + tier] = squash(timer.timer_s, TIME_SCALE_S)
            out[i, base + TUNED + tier] = squash(timer.tuned_s, TIME_SCALE_S)
            out[i, base + FILL + tier] = timer.entries / window
            out[i, base + WINDOW_MEAN + tier] = squash(timer.mean_s, TIME_SCALE_S)
            out[i, base + WINDOW_DEVIATION + tier] = squash(timer.deviation_s, TIME_SCALE_S)


@jit
def _observe_offer(worlds: World, i: int, out: NDArray[np.float32]) -> None:
    """The job that asks and what it is offered."""
    rules = worlds.rules[i, 0]
    clock = worlds.clock[i, 0]
    job = worlds.jobs[i, clock.asked_job]
    timer_class = worlds.buckets[i, job.bucket].timer_class
    iteration_s = worlds.iteration_s[i, clock.network_state, job.profile, clock.asked_tier]
    base = _G + worlds.timers.shape[1] * _K
    out[i, base + ASKED] = 1.0
    out[i, base + ASKED + clock.asked_tier] = 1.0
    out[i, base + DEMAND] = job.gpus / rules.gpus
    out[i, base + MACHINES] = squash(job.gpus / rules.gpus_per_machine, 1.0)
    out[i, base + LOSS] = squash(iteration_s / worlds.profiles[i, job.profile].ideal_s - 1.0, 1.0)
    out[i, base + STARVATION] = squash(clock.now - job.enqueue_s, TIME_SCALE_S)
    out[i, base + SERVICE] = squash(job.gpus * job.running_s, SERVICE_SCALE_GPU_S)
    out[i, base + PREEMPTIONS] = squash(job.preemptions, 1.0)
    for tier in range(2):
        out[i, base + OFFER_TUNED + tier] = squash(worlds.timers[i, timer_class, tier].tuned_s, TIME_SCALE_S)


@jit
def observe_rows(worlds: World, first: int, end: int, before: NDArray[np.float64], out: NDArray[np.float32]) -> None:
    """Observe simulators [first, end) of many into rows of `out` (N, F); a row that holds no run yet is all 0.

    `before` (N, 2) holds the jobs submitted and finished at the previous decision. F tells whether the offer is among the features.
    """
    offer = out.shape[1] > _G + worlds.timers.shape[1] * _K
    for i in range(first, end):
        out[i, :] = 0.0
        if worlds.rules[i, 0].jobs == 0:
            continue
        _observe_cluster(worlds, i, before, out)
        _observe_running(worlds, i, out)
        _observe_queued(worlds, i, out)
        _observe_classes(worlds, i, out)
        if offer and worlds.clock[i, 0].asked_job != NONE:
            _observe_offer(worlds, i, out)


def observe(world: World, policy: Policy, job_offer: bool = False) -> NDArray[np.float32]:
    """(F,) the features of one simulator (`Simulator.world`), as at a first decision: all its arrivals are news."""
    out = np.zeros((1, len(feature_names(policy, job_offer))), np.float32)
    columns: list[Any] = [column[None] for column in world]
    observe_rows(World(*columns), 0, 1, np.zeros((1, 2)), out)
    return out[0]
