"""The environments keep Gymnasium's contract, and the agent's path through them is the kernel's."""

import json
import pickle
from copy import deepcopy
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import ddl_gym
from ddl_gym.actions import absolute_timer_s
from ddl_gym.env import ClassTimersEnv, ClusterEnv, DelayTimersDiscreteEnv, DelayTimersEnv, JobOfferEnv
from ddl_gym.jobs import JobRecords
from ddl_gym.policies import Policy
from ddl_gym.simulator import Simulator

SMALL = {"jobs": 24, "cluster": "2x2x8", "load": 1.5, "network_congestion": 20.0, "trace": "distributed_short"}


def play(env: ClusterEnv, action, seed: int = 0) -> tuple[float, dict]:
    """One episode with a constant action or one drawn by `action(env)`; its return and last info."""
    env.reset(seed=seed)
    total, ended, info = 0.0, False, {}
    while not ended:
        _, reward, terminated, truncated, info = env.step(action(env) if callable(action) else action)
        total += reward
        ended = terminated or truncated
    return total, info


def kernel_run(env: ClusterEnv, policy: Policy) -> JobRecords:
    """The env's last episode once more, under a policy inside the kernel."""
    episode = env.fleet.drawer.draw(np.random.default_rng(0), env.fleet.drawn[0])
    return Simulator(env.fleet.cluster, episode.jobs, policy, tables=episode.tables).run()


def assert_same_schedule(env: ClusterEnv, policy: Policy) -> None:
    expected, got = kernel_run(env, policy), env.fleet.records(0)
    for name in JobRecords._fields:
        assert np.array_equal(getattr(got, name), getattr(expected, name)), name


@pytest.mark.parametrize("env_id", ddl_gym.ENV_IDS)
def test_gymnasium_accepts_every_id(env_id):
    check_env(gym.make(env_id, **SMALL).unwrapped)


@pytest.mark.parametrize("env_id", ddl_gym.ENV_IDS)
def test_a_spec_survives_a_json_round_trip(env_id):
    spec = gym.make(env_id, **SMALL).spec
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    assert json.loads(again.spec.to_json())["kwargs"] == json.loads(spec.to_json())["kwargs"]
    again.reset(seed=0)


def test_the_id_can_name_its_module():
    assert gym.make("ddl_gym:ddl_gym/DelayTimers-v0", **SMALL).spec.id == "ddl_gym/DelayTimers-v0"


@pytest.mark.parametrize("env_id", ddl_gym.ENV_IDS)
def test_any_policy_ends_an_episode(env_id):
    env = gym.make(env_id, **SMALL).unwrapped
    env.action_space.seed(0)
    low, high = (
        (env.action_space.low, env.action_space.high)
        if isinstance(env.action_space, gym.spaces.Box)
        else (np.zeros(env.action_space.shape, int), np.ones(env.action_space.shape, int))
    )
    for action in (low, high, lambda env: env.action_space.sample()):
        _, info = play(env, action)
        assert info["summary"]["unfinished"] == 0


@pytest.mark.parametrize("order", ["las", "fifo", "useful_service"])
@pytest.mark.parametrize("preemption", [True, False])
def test_the_zero_residual_action_is_the_auto_tuner(order, preemption):
    env = DelayTimersEnv(**SMALL, order=order, preemption=preemption, upgrade=preemption)
    play(env, np.zeros(2))
    assert_same_schedule(env, env.settings.policy())


def test_dally_through_the_env_is_dally_in_the_kernel():
    settings = {"order": "useful_service", "preemption": True, "preemption_margin": 0.5, "upgrade": True}
    env = ClassTimersEnv(**SMALL, **settings)
    play(env, np.zeros(env.action_space.shape))
    assert_same_schedule(env, replace(ddl_gym.named_policy("dally"), name="env"))


@pytest.mark.parametrize("action", [(-1.0, -1.0), (-0.5, 0.25), (0.0, 1.0), (1.0, 1.0)])
def test_absolute_timers_are_static_timers_in_the_kernel(action):
    env = DelayTimersEnv(**SMALL, action_mode="absolute")
    play(env, np.array(action))
    machine_s, rack_s = absolute_timer_s(np.array(action), env.settings.absolute_scale_s)
    assert_same_schedule(
        env,
        replace(
            env.settings.policy(), auto_tuner=False, machine_timer_s=machine_s, rack_timer_s=max(machine_s, rack_s)
        ),
    )


def test_declining_every_offer_is_full_consolidation():
    env = JobOfferEnv(**SMALL)
    play(env, 0)
    assert_same_schedule(
        env, replace(env.settings.policy(), auto_tuner=False, machine_timer_s=np.inf, rack_timer_s=np.inf)
    )


def test_accepting_every_offer_without_preemption_is_no_wait():
    env = JobOfferEnv(**SMALL, preemption=False)
    play(env, 1)
    assert_same_schedule(env, replace(env.settings.policy(), auto_tuner=False, machine_timer_s=0.0, rack_timer_s=0.0))


def test_the_return_is_the_negative_mean_jct_in_mean_durations():
    env = DelayTimersEnv(**SMALL, reward="jct")
    total, _ = play(env, np.zeros(2))
    records = env.fleet.records(0)
    jct_s = records.finish_s - records.submit_s
    assert total == pytest.approx(-jct_s.mean() / records.duration_s.mean(), rel=1e-12)


def test_the_return_is_the_negative_makespan_in_lower_bounds():
    env = DelayTimersEnv(**SMALL, reward="makespan")
    total, _ = play(env, np.zeros(2))
    records = env.fleet.records(0)
    work_s = (records.gpus * records.duration_s).sum() / env.fleet.cluster.gpus
    assert total == pytest.approx(-records.finish_s.max() / max(work_s, records.duration_s.max()), rel=1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_mixed_return_is_the_weighted_sum(weight):
    returns = {
        name: play(DelayTimersEnv(**SMALL, reward=name, jct_weight=weight), np.zeros(2))[0]
        for name in ("jct", "makespan", "mixed")
    }
    assert returns["mixed"] == pytest.approx(weight * returns["jct"] + (1 - weight) * returns["makespan"], rel=1e-12)


@pytest.mark.parametrize("env_class", [DelayTimersEnv, JobOfferEnv])
@pytest.mark.parametrize("reward", ["jct", "makespan"])
def test_with_the_baseline_the_return_is_the_difference_to_the_auto_tuner(env_class, reward):
    action = np.array([1.0, 1.0]) if env_class is DelayTimersEnv else 0
    plain, _ = play(env_class(**SMALL, reward=reward), action)
    reference, _ = play(DelayTimersEnv(**SMALL, reward=reward), np.zeros(2))
    improvement, _ = play(env_class(**SMALL, reward=reward, baseline="auto_tuner"), action)
    assert improvement == pytest.approx(plain - reference, abs=1e-10)
    assert play(DelayTimersEnv(**SMALL, reward=reward, baseline="auto_tuner"), np.zeros(2))[0] == 0.0


def test_too_many_decisions_truncate_and_say_how_many_jobs_are_unfinished():
    env = DelayTimersEnv(**SMALL, max_decisions=2)
    env.reset(seed=0)
    assert env.step(np.zeros(2))[2:4] == (False, False)
    *_, terminated, truncated, info = env.step(np.zeros(2))
    assert (terminated, truncated) == (False, True)
    assert info["summary"]["unfinished"] > 0
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(2))


@pytest.mark.parametrize("copy", [deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("env_class", [DelayTimersEnv, ClassTimersEnv, DelayTimersDiscreteEnv, JobOfferEnv])
def test_a_copy_in_mid_episode_goes_on_alike(env_class, copy):
    env = env_class(**SMALL)
    env.reset(seed=1)
    env.action_space.seed(1)
    env.step(env.action_space.sample())
    other = copy(env)
    for _ in range(5):
        action = env.action_space.sample()
        first, second = env.step(action), other.step(action)
        assert np.array_equal(first[0], second[0])
        assert first[1:4] == second[1:4]
        if first[2]:
            break
    assert np.array_equal(env.reset()[0], other.reset()[0])


def test_set_state_returns_to_the_moment_of_get_state():
    env = DelayTimersEnv(**SMALL, baseline="auto_tuner")
    env.reset(seed=1)
    env.step(np.array([0.5, 0.5]))
    state = env.get_state()
    ahead = [env.step(np.array([-1.0, 1.0])) for _ in range(3)]
    env.set_state(state)
    again = [env.step(np.array([-1.0, 1.0])) for _ in range(3)]
    for (observation, *first), (repeated, *second) in zip(ahead, again, strict=True):
        assert np.array_equal(observation, repeated)
        assert first == second
    with pytest.raises(ValueError, match="another environment"):
        DelayTimersEnv(**SMALL | {"jobs": 9}, baseline="auto_tuner").set_state(state)


@pytest.mark.parametrize(
    ("env_class", "action", "said"),
    [
        (DelayTimersEnv, [np.nan, 0.0], "component 0 of the action is nan"),
        (DelayTimersEnv, [0.0, 1.5], "component 1 of the action is 1.5"),
        (DelayTimersEnv, [0.0], "shape"),
        (ClassTimersEnv, [0.0, 0.0], "shape"),
        (DelayTimersDiscreteEnv, [0, 99], "whole numbers"),
        (DelayTimersDiscreteEnv, [0.5, 0], "whole numbers"),
        (JobOfferEnv, 2, "whole numbers"),
    ],
)
def test_a_bad_action_is_one_clear_error(env_class, action, said):
    env = env_class(**SMALL)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=said):
        env.step(np.array(action))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"job": 5}, "unknown environment argument 'job'"),
        ({"reward": "jtc"}, "one of jct, makespan, mixed"),
        ({"cluster": "7"}, "unknown cluster '7'"),
        ({"load": [2.0, 1.0]}, "low before high"),
        ({"network_congestion": 0.5}, "network_congestion"),
        ({"decision_s": 450.0}, "multiple of round_s"),
        ({"trace": "nowhere"}, "no trace 'nowhere'"),
        ({"trace": {"arivals": "batch"}}, "arivals"),
        ({"congested_hours": [9, 8, 2.0]}, "hours must ascend"),
        ({"render_mode": "gif"}, "render_mode"),
    ],
)
def test_a_bad_argument_is_one_clear_error(settings, said):
    with pytest.raises(ValueError, match=said):
        DelayTimersEnv(**settings)


def test_reset_options_fix_what_they_name():
    env = DelayTimersEnv(**SMALL | {"load": [0.8, 1.2], "network_congestion": [1.0, 80.0]})
    _, drawn = env.reset(seed=5)
    _, fixed = env.reset(seed=6, options={"load": drawn["load"], "trace_seed": drawn["trace_seed"]})
    assert (fixed["load"], fixed["trace_seed"]) == (drawn["load"], drawn["trace_seed"])
    assert fixed["network_congestion"] != drawn["network_congestion"]
    with pytest.raises(ValueError, match="unknown reset option 'lod'"):
        env.reset(options={"lod": 1.0})


def test_splits_of_a_generated_workload_share_no_trace():
    seeds = {}
    for split in ("train", "validation", "test"):
        env = DelayTimersEnv(**SMALL, split=split)
        env.reset(seed=0)
        seeds[split] = env.fleet.jobs[0].duration_s.tolist()
    assert len({tuple(durations) for durations in seeds.values()}) == 3


def test_congested_hours_change_the_network_within_an_episode():
    env = DelayTimersEnv(**SMALL, congested_hours=[6, 18, 20.0])
    _, drawn = env.reset(seed=0, options={"congested_from_h": 5.0})
    episode = env.fleet.drawer.draw(np.random.default_rng(0), drawn)
    assert episode.tables.step_s[:3].tolist() == [0.0, 3_600.0, 13 * 3_600.0]
    assert episode.tables.step_state[:3].tolist() == [0, 1, 0]


def test_the_registered_class_env_has_its_own_classes():
    assert gym.make("ddl_gym/ClassTimers-v0").unwrapped.fleet.policy.classes == 7 * 3 * 3


def test_congestion_around_the_clock_is_constant():
    env = DelayTimersEnv(**SMALL | {"network_congestion": 2.0}, congested_hours=[0, 24, 3.0])
    _, drawn = env.reset(seed=0)
    tables = env.fleet.drawer.draw(np.random.default_rng(0), drawn).tables
    assert set(tables.step_state.tolist()) == {0}


@pytest.mark.parametrize(
    "option",
    [
        {"load": -1.0},
        {"load": 0},
        {"load": np.nan},
        {"load": "x"},
        {"network_congestion": 0.5},
        {"congested_from_h": np.inf},
    ],
)
def test_a_bad_reset_option_is_one_clear_error(option):
    with pytest.raises(ValueError, match="reset option"):
        DelayTimersEnv(**SMALL).reset(options=option)


@pytest.mark.parametrize(
    "settings", [{"restore_s": np.nan}, {"restore_s": -1.0}, {"residual_range": np.inf}, {"round_s": 0}]
)
def test_numbers_without_meaning_are_refused(settings):
    with pytest.raises(ValueError, match="must be"):
        DelayTimersEnv(**SMALL, **settings)


def test_rendering_before_the_first_reset_says_to_reset():
    with pytest.raises(RuntimeError, match="call reset"):
        DelayTimersEnv(**SMALL, render_mode="ansi").render()
