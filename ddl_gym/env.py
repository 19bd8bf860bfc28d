"""The Gymnasium environments: wiring of a one-row fleet to spaces, actions and information."""

from copy import deepcopy
from typing import Any, ClassVar, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ddl_gym import actions
from ddl_gym.fleet import Fleet
from ddl_gym.observation import observation_space
from ddl_gym.settings import Settings
from ddl_gym.world import world_row

Observation = NDArray[np.float32]


def check_box(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """The action as float64; ValueError if it has another shape, is NaN or outside [-1, 1]."""
    array = np.asarray(values, np.float64)
    if array.shape != shape:
        raise ValueError(f"the action has shape {array.shape}, it must be {shape}")
    if not (array.min() >= -1.0 and array.max() <= 1.0):  # not the other way round: NaN compares as false
        at = int(np.argmin(np.abs(array.ravel()) <= 1.0))
        raise ValueError(f"component {at % shape[-1]} of the action is {array.ravel()[at]}, it must be in [-1, 1]")
    return array


def check_integers(values: Any, shape: tuple[int, ...], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The action as int64; ValueError if it has another shape, is no whole number or outside [0, counts)."""
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(f"the action has shape {array.shape}, it must be {shape}")
    whole = np.asarray(array, np.float64)
    if not np.all((whole == np.floor(whole)) & (whole >= 0) & (whole < counts)):
        raise ValueError(f"the action is {array.tolist()}, it must be whole numbers in [0, {np.max(counts)})")
    return array.astype(np.int64)


class Decision:
    """One kind of decision: its action space for one row, and what an action does to all rows of a fleet.

    `kind` is the fleet's; `apply` takes actions of all rows (a leading dimension N).
    """

    kind: ClassVar[str] = "timers"
    defaults: ClassVar[dict[str, Any]] = {}  # settings that differ from the defaults of `Settings`

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.space = self.make_space()

    def make_space(self) -> spaces.Space[Any]:
        """Action space of one row."""
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def apply(self, fleet: Fleet, values: Any) -> None:
        """Check actions of shape (N, ...) and set them."""
        components = check_box(values, (fleet.rows, 2))
        fleet.set_timers(components[:, None, :])

    def masks(self, fleet: Fleet) -> NDArray[np.bool_] | None:
        """(N, total of choices) which choices are valid, for discrete decisions."""
        return None


class ClassDecision(Decision):
    """Timers by class and the preemption margin."""

    kind = "classes"
    defaults: ClassVar[dict[str, Any]] = {"sensitivity_edges": (0.1, 0.5), "service_edges": (3_600.0, 86_400.0)}

    def make_space(self) -> spaces.Space[Any]:
        """One component for each name of `class_action_names`."""
        self.policy = self.settings.policy()
        self.names = actions.class_action_names(self.policy, self.settings.layout)
        return spaces.Box(-1.0, 1.0, (len(self.names),), np.float32)

    def apply(self, fleet: Fleet, values: Any) -> None:
        """Set timers of every class and the margin."""
        array = check_box(values, (fleet.rows, len(self.names)))
        fleet.set_timers(actions.class_components(array, self.policy, self.settings.layout))
        fleet.set_margins(array[:, -1])


class DiscreteDecision(Decision):
    """Cluster-wide timers on a grid of levels."""

    def make_space(self) -> spaces.Space[Any]:
        """A level of each timer."""
        if self.settings.action_mode == "residual":
            self.levels = np.array(actions.RESIDUAL_LEVELS)
        else:
            self.levels = actions.absolute_action(actions.ABSOLUTE_LEVELS_S, self.settings.absolute_scale_s)
        self.counts = np.array([len(self.levels)] * 2)
        return spaces.MultiDiscrete(self.counts)

    def apply(self, fleet: Fleet, values: Any) -> None:
        """Set both timers to their levels."""
        chosen = check_integers(values, (fleet.rows, 2), self.counts)
        fleet.set_timers(self.levels[chosen][:, None, :])

    def masks(self, fleet: Fleet) -> NDArray[np.bool_]:
        """The rack timer has one meaningful level on a single rack: there it is masked to the first."""
        masks = np.ones((fleet.rows, 2 * len(self.levels)), np.bool_)
        if fleet.cluster.racks == 1:
            masks[:, len(self.levels) + 1 :] = False
        return masks


class OfferDecision(Decision):
    """Accept (1) or decline (0) the offer asked about."""

    kind = "offers"

    def make_space(self) -> spaces.Space[Any]:
        """Decline or accept."""
        return spaces.Discrete(2)

    def apply(self, fleet: Fleet, values: Any) -> None:
        """Answer the offers."""
        fleet.answer(check_integers(values, (fleet.rows,), np.array([2])) == 1)

    def masks(self, fleet: Fleet) -> NDArray[np.bool_]:
        """Declining is always valid, accepting where an offer is asked about."""
        return np.stack([np.ones(fleet.rows, np.bool_), fleet.asked], axis=1)


class ClusterEnv(gym.Env[Observation, Any]):
    """What all environments share: one fleet row, reset, step, masks, states and rendering."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 4}  # type: ignore[misc]
    decision_class: ClassVar[type[Decision]] = Decision

    def __init__(self, *, render_mode: str | None = None, **settings: Any) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode is {render_mode!r}, it must be one of {self.metadata['render_modes']}")
        self.render_mode = render_mode
        self.settings = Settings.of(**self.decision_class.defaults | settings)
        self.decision = self.decision_class(self.settings)
        self.fleet = Fleet(self.settings, self.decision.kind, rows=1)
        self.action_space = self.decision.space
        self.observation_space: Any = observation_space(self.fleet.policy, job_offer=self.decision.kind == "offers")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the observation's components."""
        return self.fleet.feature_names

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Draw an episode; `options` fix what they name (`ddl_gym.scenario.OPTIONS`). `info` holds what was drawn."""
        super().reset(seed=seed)
        self.fleet.reset(0, self.np_random, options)
        return self._observe(), dict(self.fleet.drawn[0])

    def step(self, action: Any) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a decision and run to the next one; at the end `info["summary"]` holds the metrics."""
        if not self.fleet.active[0]:
            raise RuntimeError("the episode is over, or none has begun: call reset()")
        self.decision.apply(self.fleet, np.asarray(action)[None])
        outcome = self.fleet.step()
        ended = bool(outcome.terminated[0] or outcome.truncated[0])
        info: dict[str, Any] = {"now_s": self.fleet.now_s(0)}
        if ended:
            info["summary"] = self.fleet.summary(0)
        observation = self._observe()
        return observation, float(outcome.rewards[0]), bool(outcome.terminated[0]), bool(outcome.truncated[0]), info

    def _observe(self) -> Observation:
        observation: Observation = self.fleet.observe()[0].copy()
        return observation

    def action_masks(self) -> NDArray[np.bool_]:
        """Valid choices, for MaskablePPO; all choices of all dimensions one after the other. Discrete actions only."""
        masks = self.decision.masks(self.fleet)
        if masks is None:
            raise AttributeError("continuous actions have no masks")
        mask: NDArray[np.bool_] = masks[0]
        return mask

    def get_state(self) -> dict[str, Any]:
        """Everything that decides how the episode goes on, for `set_state`; also of the random numbers."""
        return {"fleet": self.fleet.get_state([0]), "rng": deepcopy(self.np_random.bit_generator.state)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Return to a state of this environment or of another with the same arguments."""
        self.fleet.set_state(state["fleet"])
        self.np_random.bit_generator.state = deepcopy(state["rng"])

    def render(self) -> Any:
        """A picture (H, W, 3) uint8 or a text of the cluster now."""
        from ddl_gym.render import render_ansi, render_rgb

        if self.render_mode is None:
            raise ValueError("the environment was made without a render_mode")
        if self.fleet.jobs[0] is None:
            raise RuntimeError("there is nothing to render yet: call reset()")
        world = world_row(self.fleet.worlds, 0)
        return render_ansi(world) if self.render_mode == "ansi" else render_rgb(world)

    def close(self) -> None:
        """Nothing is held."""
        self.fleet.close()


class DelayTimersEnv(ClusterEnv):
    """The paper's knobs: one machine timer and one rack timer for all jobs, set every `decision_s` seconds.

    ## Description
    A GPU cluster trains distributed deep-learning jobs. A queued job holds out for GPUs on one machine until its machine
    timer runs out, then for GPUs in one rack until its rack timer does, then takes what there is (delay scheduling; Dally,
    arXiv 2401.16492, reconstructed). The rules of the simulation are those of `ddl_gym.simulator`.

    ## Action Space
    `Box(-1, 1, (2,), float32)`: machine timer, rack timer. With `action_mode="residual"` 0 is the auto-tuner's timer and the ends
    are an eighth and eight times of it; with "absolute" -1 is 0 s and +1 is never. See `ddl_gym.actions`.

    ## Observation Space
    `Box(low, high, (F,), float32)`; `feature_names` names the components, `ddl_gym.observation` describes them.

    ## Rewards
    "jct", "makespan" or "mixed", minus the auto-tuner's with `baseline="auto_tuner"`. See `ddl_gym.reward`.

    ## Starting State
    Jobs, load and network congestion are drawn from the ranges of the arguments; the cluster is empty at time 0.

    ## Episode End
    Terminated: all jobs have finished. Truncated: `max_decisions` decisions were taken.

    ## Arguments
    See `ddl_gym.settings.Settings`, and `render_mode`: None, "rgb_array" or "ansi".

    ## Version History
    * v0: first version.
    """


class ClassTimersEnv(ClusterEnv):
    """Timers by class of jobs, and the preemption margin.

    ## Description
    As `DelayTimersEnv`, but jobs are told apart by demand, by sensitivity to communication and by attained service.

    ## Action Space
    `Box(-1, 1, (A,), float32)` with the components of `ddl_gym.actions.class_action_names`: `layout="factored"` a base a tier plus an
    offset a bin (default), `layout="table"` a component a tier and class; the preemption margin is last, 0 keeping the setting.

    ## Observation Space
    As `DelayTimersEnv`, with the features of every class.

    ## Rewards
    As `DelayTimersEnv`.

    ## Starting State
    As `DelayTimersEnv`.

    ## Episode End
    As `DelayTimersEnv`.

    ## Arguments
    As `DelayTimersEnv`.

    ## Version History
    * v0: first version.
    """

    decision_class = ClassDecision


class DelayTimersDiscreteEnv(ClusterEnv):
    """The two cluster-wide timers on a grid.

    ## Description
    As `DelayTimersEnv`, for algorithms with discrete actions.

    ## Action Space
    `MultiDiscrete([n, n])`: a level of the machine timer and one of the rack timer, of `ddl_gym.actions.RESIDUAL_LEVELS` or
    `ABSOLUTE_LEVELS_S` by `action_mode`. `action_masks()` gives the valid levels, both dimensions one after the other.

    ## Observation Space
    As `DelayTimersEnv`.

    ## Rewards
    As `DelayTimersEnv`.

    ## Starting State
    As `DelayTimersEnv`.

    ## Episode End
    As `DelayTimersEnv`.

    ## Arguments
    As `DelayTimersEnv`.

    ## Version History
    * v0: first version.
    """

    decision_class = DiscreteDecision


class JobOfferEnv(ClusterEnv):
    """One decision for each offer worse than a job's best tier: take it or hold out.

    ## Description
    Timers play no part (rule "Asking" of `ddl_gym.simulator`). The time between decisions varies: `info["now_s"]` tells it.

    ## Action Space
    `Discrete(2)`: 0 declines, 1 accepts. `action_masks()` allows 1 where an offer is asked about.

    ## Observation Space
    As `DelayTimersEnv`, with features of the job asked about.

    ## Rewards
    As `DelayTimersEnv`, for the time until the next question.

    ## Starting State
    As `DelayTimersEnv`; the clock stands at the first question.

    ## Episode End
    Terminated: all jobs have finished. Truncated: `max_decisions` decisions were taken.

    ## Arguments
    As `DelayTimersEnv`; `decision_s` and `action_mode` have no effect.

    ## Version History
    * v0: first version.
    """

    decision_class = OfferDecision
