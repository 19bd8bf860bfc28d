"""Many environments in one: the native Gymnasium vector env, and the Stable-Baselines3 VecEnv over it."""

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ddl_gym.env import (
    ClassDecision,
    ClusterEnv,
    Decision,
    DiscreteDecision,
    OfferDecision,
)
from ddl_gym.fleet import Fleet
from ddl_gym.observation import observation_space
from ddl_gym.settings import Settings
from ddl_gym.world import world_row

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

Arrays = dict[str, Any]


class ClusterVectorEnv(VectorEnv[NDArray[np.float32], Any, Any]):
    """`num_envs` environments advanced in one compiled call; row i behaves as the single env seeded seed + i.

    `autoreset_mode` is NEXT_STEP (default), SAME_STEP or DISABLED, as Gymnasium defines them. `threads` advance the rows (default: one a
    core); the results do not depend on it. With `copy=False` the observations are a buffer that the next step overwrites. At the end of an
    episode `infos["summary"]` holds its metrics. Other arguments are those of the single env.
    """

    metadata = ClusterEnv.metadata
    decision_class: ClassVar[type[Decision]] = Decision

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        threads: int | None = None,
        copy: bool = True,
        **settings: Any,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}, it must be at least 1")
        if max_episode_steps is not None:
            settings["max_decisions"] = min(max_episode_steps, settings.get("max_decisions", max_episode_steps))
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode is {render_mode!r}, it must be one of {self.metadata['render_modes']}")
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = dict(type(self).metadata, autoreset_mode=self.autoreset_mode)
        self.settings = Settings.of(**self.decision_class.defaults | settings)
        self.decision = self.decision_class(self.settings)
        self.fleet = Fleet(self.settings, self.decision.kind, num_envs, threads=threads or os.cpu_count() or 1)
        self.copy = copy
        self.single_action_space = self.decision.space
        self.single_observation_space = observation_space(self.fleet.policy, job_offer=self.decision.kind == "offers")
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._rngs: list[np.random.Generator] = []
        self._needs_reset = np.ones(num_envs, np.bool_)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the observation's components."""
        return self.fleet.feature_names

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Arrays | None = None
    ) -> tuple[NDArray[np.float32], Arrays]:
        """Reset all rows, or those of `options["reset_mask"]`; other options go to every row's reset."""
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ValueError(f"reset_mask must be {self.num_envs} booleans of which one at least is true")
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int | np.integer) else seed
        if seeds is None:
            seeds = [None] * self.num_envs
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        if not self._rngs:
            self._rngs = [seeding.np_random(None)[0] for _ in range(self.num_envs)]
        infos: Arrays = {}
        for row in map(int, np.flatnonzero(mask)):
            if seeds[row] is not None:
                self._rngs[row] = seeding.np_random(seeds[row])[0]
            infos = self._reset_row(row, infos, options)
        return self._observe(), infos

    def _reset_row(self, row: int, infos: Arrays, options: Arrays | None = None) -> Arrays:
        self.fleet.reset(row, self._rngs[row], options)
        self._needs_reset[row] = False
        return self._add_info(infos, dict(self.fleet.drawn[row]), row)

    def step(
        self, actions: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Arrays]:
        """One decision of every row."""
        infos: Arrays = {}
        to_reset = self._needs_reset.copy()
        if to_reset.any() and (self.autoreset_mode is not AutoresetMode.NEXT_STEP or not self._rngs):
            raise RuntimeError(f"rows {np.flatnonzero(to_reset).tolist()} are not in an episode: call reset()")
        self.decision.apply(self.fleet, actions)
        outcome = self.fleet.step()
        ended = outcome.terminated | outcome.truncated
        for row in map(int, np.flatnonzero(to_reset)):
            infos = self._reset_row(row, infos)
        self._needs_reset = ended.copy()
        if ended.any() and self.autoreset_mode is AutoresetMode.SAME_STEP:
            infos = self._reset_in_step(ended, infos)
        elif ended.any():
            for row in map(int, np.flatnonzero(ended)):
                infos = self._add_info(infos, {"summary": self.fleet.summary(row)}, row)
        return self._observe(), outcome.rewards, outcome.terminated, outcome.truncated, infos

    def _reset_in_step(self, ended: NDArray[np.bool_], infos: Arrays) -> Arrays:
        last = self.fleet.observe().copy()
        final_observations = np.full(self.num_envs, None, dtype=object)
        final_infos: Arrays = {}
        for row in map(int, np.flatnonzero(ended)):
            final_observations[row] = last[row]
            final_infos = self._add_info(final_infos, {"summary": self.fleet.summary(row)}, row)
            infos = self._reset_row(row, infos)
        infos |= {"final_obs": final_observations, "_final_obs": ended.copy()}
        return infos | {"final_info": final_infos, "_final_info": ended.copy()}

    def _observe(self) -> NDArray[np.float32]:
        observations = self.fleet.observe()
        return observations.copy() if self.copy else observations

    def action_masks(self) -> NDArray[np.bool_]:
        """(N, choices) valid choices of every row; discrete actions only."""
        masks = self.decision.masks(self.fleet)
        if masks is None:
            raise AttributeError("continuous actions have no masks")
        return masks

    def get_state(self) -> Arrays:
        """Everything that decides how the episodes go on, for `set_state`."""
        return {
            "fleet": self.fleet.get_state(range(self.num_envs)),
            "rngs": [rng.bit_generator.state for rng in self._rngs],
            "needs_reset": self._needs_reset.copy(),
        }

    def set_state(self, state: Arrays) -> None:
        """Return to a state of a vector env with the same arguments."""
        self.fleet.set_state(state["fleet"])
        self._rngs = []
        for saved in state["rngs"]:
            rng = seeding.np_random(0)[0]
            rng.bit_generator.state = saved
            self._rngs.append(rng)
        self._needs_reset = state["needs_reset"].copy()

    def render(self) -> tuple[Any, ...]:
        """A frame of every row."""
        from ddl_gym.render import render_ansi, render_rgb

        if self.render_mode is None:
            raise ValueError("the environment was made without a render_mode")
        draw = render_ansi if self.render_mode == "ansi" else render_rgb
        return tuple(draw(world_row(self.fleet.worlds, row)) for row in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads."""
        self.fleet.close()


class DelayTimersVectorEnv(ClusterVectorEnv):
    """Vector form of `ddl_gym/DelayTimers-v0`."""


class ClassTimersVectorEnv(ClusterVectorEnv):
    """Vector form of `ddl_gym/ClassTimers-v0`."""

    decision_class = ClassDecision


class DelayTimersDiscreteVectorEnv(ClusterVectorEnv):
    """Vector form of `ddl_gym/DelayTimersDiscrete-v0`."""

    decision_class = DiscreteDecision


class JobOfferVectorEnv(ClusterVectorEnv):
    """Vector form of `ddl_gym/JobOffer-v0`."""

    decision_class = OfferDecision


VECTOR_ENVS: dict[str, type[ClusterVectorEnv]] = {
    "ddl_gym/DelayTimers-v0": DelayTimersVectorEnv,
    "ddl_gym/ClassTimers-v0": ClassTimersVectorEnv,
    "ddl_gym/DelayTimersDiscrete-v0": DelayTimersDiscreteVectorEnv,
    "ddl_gym/JobOffer-v0": JobOfferVectorEnv,
}


def make_sb3_vec_env(env_id: str, num_envs: int, seed: int | None = None, **settings: Any) -> "VecEnv":
    """A Stable-Baselines3 VecEnv over the native vector env of that id; needs stable-baselines3.

    Rewards are float32, finished rows are reset in the same step, `infos[i]["episode"]` holds return, length and time as Monitor's
    does, and `infos[i]["summary"]` the metrics. Discrete ids answer `env_method("action_masks")` for MaskablePPO.
    """
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv

    if env_id not in VECTOR_ENVS:
        raise ValueError(f"unknown environment {env_id!r}; known: {', '.join(VECTOR_ENVS)}")
    native = VECTOR_ENVS[env_id](num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **settings)

    class NativeVecEnv(VecEnv):  # defined here so that importing this module needs no torch
        def __init__(self) -> None:
            self.native = native
            self.began = time.perf_counter()
            self.returns, self.lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
            super().__init__(num_envs, native.single_observation_space, native.single_action_space)
            if seed is not None:
                self.seed(seed)

        def reset(self) -> NDArray[np.float32]:
            seeds = [None if s is None else int(s) for s in self._seeds]
            observations, infos = native.reset(seed=seeds if any(s is not None for s in seeds) else None)
            self.reset_infos = _rows_of(infos, num_envs)
            self._reset_seeds()
            self._reset_options()
            self.returns[:], self.lengths[:] = 0, 0
            return observations

        def step_async(self, actions: Any) -> None:
            self.pending = actions

        def step_wait(self) -> Any:
            observations, rewards, terminated, truncated, infos = native.step(self.pending)
            self.returns += rewards
            self.lengths += 1
            rows: list[Arrays] = [{} for _ in range(num_envs)]
            dones = terminated | truncated
            for row in np.flatnonzero(dones):
                info: Arrays = {"summary": _rows_of(infos["final_info"]["summary"], num_envs)[row]}
                info["terminal_observation"] = infos["final_obs"][row]
                info["TimeLimit.truncated"] = bool(truncated[row] and not terminated[row])
                elapsed_s = round(time.perf_counter() - self.began, 6)
                info["episode"] = {"r": float(self.returns[row]), "l": int(self.lengths[row]), "t": elapsed_s}
                rows[row] = info
            self.returns[dones], self.lengths[dones] = 0, 0
            return observations, rewards.astype(np.float32), dones, rows

        def close(self) -> None:
            native.close()

        def has_attr(self, attr_name: str) -> bool:
            if attr_name == "action_masks":
                return native.decision.masks(native.fleet) is not None
            return hasattr(native, attr_name)

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(native, attr_name) for _ in self._get_indices(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise AttributeError(f"{attr_name} cannot be set: the environments share one fleet")

        def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
            if method_name != "action_masks":
                raise AttributeError(f"the native vector env has no method {method_name!r} for single environments")
            masks = native.action_masks()
            return [masks[row] for row in self._get_indices(indices)]

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [wrapper_class is Monitor for _ in self._get_indices(indices)]

        def get_images(self) -> Sequence[Any]:
            return native.render() if native.render_mode == "rgb_array" else [None] * num_envs

    return NativeVecEnv()


def _rows_of(infos: Arrays, rows: int) -> list[Arrays]:
    """One dict a row from Gymnasium's dict of arrays."""
    return [
        {name: values[row] for name, values in infos.items() if not name.startswith("_") and infos[f"_{name}"][row]}
        for row in range(rows)
    ]
