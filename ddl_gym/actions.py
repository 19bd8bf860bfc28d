"""What does an action mean? From arrays of actions to delay timers and a preemption margin.

Timers, by `action_mode`, for a component a in [-1, 1]:

* "residual": t = tuned * f + residual_floor_s * (f - 1), at least 0, with f = residual_range ** a and `tuned` the auto-tuner's timer of the
  class. a = 0 is the auto-tuner, exactly; the floor lets a > 0 wait where the tuner does not.
* "absolute": t = absolute_scale_s * ((1 + a) / (1 - a)) ** 2: -1 is 0 (take what there is), 0 the scale, +1 infinity (hold out for ever).

The rack timer is raised to the machine timer where it is less.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ddl_gym.policies import Policy
from ddl_gym.settings import Settings

# DelayTimersDiscrete-v0: the levels of each timer, as components of the absolute or the residual action.
ABSOLUTE_LEVELS_S = (0.0, 300.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, np.inf)
RESIDUAL_LEVELS = (-1.0, -2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3, 1.0)


def absolute_timer_s(a: NDArray[np.float64], scale_s: float) -> NDArray[np.float64]:
    """Seconds of an absolute component."""
    with np.errstate(divide="ignore"):
        return scale_s * ((1.0 + a) / (1.0 - a)) ** 2


def absolute_action(timer_s: Any, scale_s: float) -> NDArray[np.float64]:
    """The component whose absolute timer is nearest to timer_s (inverse of `absolute_timer_s`)."""
    root = np.sqrt(np.asarray(timer_s, np.float64) / scale_s)
    return np.where(np.isinf(root), 1.0, (root - 1.0) / np.where(np.isinf(root), 1.0, root + 1.0))


def class_bins(policy: Policy) -> NDArray[np.int64]:
    """(C, 3) demand, sensitivity and service bin of each class."""
    shape = (len(policy.demand_edges) + 1, len(policy.sensitivity_edges) + 1, len(policy.service_edges) + 1)
    return np.stack(np.unravel_index(np.arange(policy.classes), shape), axis=1)


def class_action_names(policy: Policy, layout: str) -> tuple[str, ...]:
    """Components of a ClassTimers action, in order.

    "factored": a base a tier, then an offset a bin of demand, sensitivity and service (dimensions of one bin have none); a
    class's component is base + its offsets, clipped to [-1, 1]. "table": one component a tier and class. The preemption margin is last.
    """
    tiers = ("machine", "rack")
    if layout == "table":
        timers = [f"{tier}_timer.class{c}" for tier in tiers for c in range(policy.classes)]
    else:
        counts = class_bins(policy).max(axis=0) + 1
        bins = zip(("demand", "sensitivity", "service"), counts, strict=True)
        offsets = [f"offset.{name}{i}" for name, count in bins if count > 1 for i in range(count)]
        timers = [f"{tier}_timer.base" for tier in tiers] + offsets
    return (*timers, "preemption_margin")


def class_components(actions: NDArray[np.float64], policy: Policy, layout: str) -> NDArray[np.float64]:
    """(N, C, 2) timer components of (N, A) ClassTimers actions."""
    rows = len(actions)
    if layout == "table":
        return actions[:, :-1].reshape(rows, 2, policy.classes).transpose(0, 2, 1)
    bins = class_bins(policy)
    components = np.repeat(actions[:, None, :2], policy.classes, axis=1)
    at = 2
    for dimension in range(3):
        count = int(bins[:, dimension].max()) + 1
        if count > 1:
            components += actions[:, at : at + count][:, bins[:, dimension], None]
            at += count
    return np.clip(components, -1.0, 1.0)


def residual_terms(
    components: NDArray[np.float64], settings: Settings
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Factor and offset (s) of the residual action: timer = max(0, tuned * factor + offset); 1 and 0 for a = 0, exactly."""
    factor = settings.residual_range**components
    return factor, settings.residual_floor_s * (factor - 1.0)


def margin(component: NDArray[np.float64], settings: Settings) -> NDArray[np.float64]:
    """Preemption margin of the last ClassTimers component: 0 keeps the setting, -1 is 0, +1 is 1; linear in between."""
    own = settings.preemption_margin
    return np.where(component < 0, own * (1.0 + component), own + (1.0 - own) * component)
