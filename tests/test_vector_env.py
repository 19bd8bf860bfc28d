"""The native vector env is the single env, row by row."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import ddl_gym
from ddl_gym.vector_env import VECTOR_ENVS, DelayTimersVectorEnv, make_sb3_vec_env

SMALL = {"jobs": 12, "cluster": "2x2x8", "load": 1.5, "network_congestion": [1.0, 40.0], "decision_s": 3_600.0}
SEEDS = (7, 8, 9)


def rollout(env_id: str, mode: AutoresetMode, steps: int, **settings):
    """Steps of a vector env under seeded actions; yields actions and results."""
    vector = VECTOR_ENVS[env_id](len(SEEDS), autoreset_mode=mode, **SMALL, **settings)
    vector.action_space.seed(3)
    observations, _ = vector.reset(seed=SEEDS[0])
    yield None, (observations,)
    for _ in range(steps):
        actions = vector.action_space.sample()
        yield actions, vector.step(actions)


@pytest.mark.parametrize("env_id", ddl_gym.ENV_IDS)
@pytest.mark.parametrize("baseline", [None, "auto_tuner"])
def test_a_row_is_the_single_env_seeded_alike_through_resets(env_id, baseline):
    singles = [gym.make(env_id, **SMALL, baseline=baseline).unwrapped for _ in SEEDS]
    steps = rollout(env_id, AutoresetMode.NEXT_STEP, 60, baseline=baseline)
    _, (observations,) = next(steps)
    for row, (single, seed) in enumerate(zip(singles, SEEDS, strict=True)):
        assert np.array_equal(single.reset(seed=seed)[0], observations[row])
    over = [False] * len(SEEDS)
    episodes = 0
    for actions, (observations, rewards, terminated, truncated, infos) in steps:
        for row, single in enumerate(singles):
            if over[row]:
                expected, reward, end, cut = single.reset()[0], 0.0, False, False
            else:
                expected, reward, end, cut, info = single.step(actions[row])
            assert np.array_equal(observations[row], expected)
            assert (rewards[row], terminated[row], truncated[row]) == (reward, end, cut)
            over[row] = end or cut
            if over[row]:
                episodes += 1
                summary = {name: column[row] for name, column in infos["summary"].items() if not name.startswith("_")}
                assert summary == {name: value for name, value in info["summary"].items() if value is not None}
    assert episodes > 3


@pytest.mark.parametrize("env_id", ddl_gym.ENV_IDS)
def test_same_step_autoreset_hides_the_last_observation_in_the_infos(env_id):
    next_step = list(rollout(env_id, AutoresetMode.NEXT_STEP, 30))
    vector = VECTOR_ENVS[env_id](len(SEEDS), autoreset_mode="SameStep", **SMALL)
    vector.reset(seed=SEEDS[0])
    for actions, (observations, rewards, terminated, truncated, _) in next_step[1:]:
        same = vector.step(actions)
        assert np.array_equal(same[1], rewards)
        ended = terminated | truncated
        if ended.any():
            row = int(np.argmax(ended))
            assert np.array_equal(same[4]["final_obs"][row], observations[row])
            assert same[4]["final_info"]["summary"]["unfinished"][row] == 0
            assert not np.array_equal(same[0][row], observations[row])
            return
        assert np.array_equal(same[0], observations)
    pytest.fail("no episode ended")


@pytest.mark.parametrize("env_id", ddl_gym.ENV_IDS)
def test_in_same_step_mode_every_row_sees_what_its_single_env_sees(env_id):
    singles = [gym.make(env_id, **SMALL).unwrapped for _ in SEEDS]
    steps = rollout(env_id, AutoresetMode.SAME_STEP, 60)
    _, (observations,) = next(steps)
    for row, (single, seed) in enumerate(zip(singles, SEEDS, strict=True)):
        assert np.array_equal(single.reset(seed=seed)[0], observations[row])
    lone_ends = 0
    for actions, (observations, rewards, *_) in steps:
        ended = np.zeros(len(SEEDS), bool)
        for row, single in enumerate(singles):
            expected, reward, terminated, truncated, _ = single.step(actions[row])
            ended[row] = terminated or truncated
            assert np.array_equal(observations[row], single.reset()[0] if ended[row] else expected)
            assert rewards[row] == reward
        lone_ends += ended.any() and not ended.all()
    assert lone_ends > 0


def test_a_masked_reset_leaves_the_other_rows_as_they_are():
    vector = DelayTimersVectorEnv(3, autoreset_mode=AutoresetMode.DISABLED, **SMALL)
    vector.reset(seed=0)
    for _ in range(3):
        before, *_ = vector.step(np.zeros((3, 2), np.float32))
    column = vector.feature_names.index("arrivals")
    assert (before[:, column] > 0).any()
    after, _ = vector.reset(options={"reset_mask": np.array([True, False, False])})
    assert np.array_equal(after[1:], before[1:])


def test_disabled_autoreset_waits_for_a_masked_reset():
    vector = DelayTimersVectorEnv(3, autoreset_mode=AutoresetMode.DISABLED, **SMALL, max_decisions=2)
    vector.reset(seed=0)
    actions = np.zeros((3, 2), np.float32)
    vector.step(actions)
    *_, truncated, _ = vector.step(actions)
    assert truncated.all()
    with pytest.raises(RuntimeError, match=r"rows \[0, 1, 2\] are not in an episode"):
        vector.step(actions)
    before = vector.fleet.observations[1].copy()
    observations, _ = vector.reset(options={"reset_mask": np.array([True, False, True])})
    assert np.array_equal(observations[1], before)
    with pytest.raises(RuntimeError, match=r"rows \[1\]"):
        vector.step(actions)


@pytest.mark.parametrize("env_id", ddl_gym.ENV_IDS)
@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_make_vec_works_in_every_mode(env_id, mode):
    vector = gym.make_vec(env_id, num_envs=2, vectorization_mode=mode, **SMALL)
    observations, _ = vector.reset(seed=0)
    vector.action_space.seed(0)
    assert vector.observation_space.contains(observations)
    for _ in range(5):
        observations, *_ = vector.step(vector.action_space.sample())
        assert vector.observation_space.contains(observations)
    vector.close()


def test_async_workers_start_after_threads_have_run_the_kernel():
    native = DelayTimersVectorEnv(64, threads=2, **SMALL)
    native.reset(seed=0)
    native.step(np.zeros((64, 2), np.float32))
    workers = gym.make_vec("ddl_gym/DelayTimers-v0", num_envs=2, vectorization_mode="async", **SMALL)
    workers.reset(seed=0)
    workers.step(np.zeros((2, 2), np.float32))
    workers.close()
    native.close()


def test_results_do_not_depend_on_the_number_of_threads():
    fleets = [DelayTimersVectorEnv(40, threads=threads, **SMALL, baseline="auto_tuner") for threads in (1, 2)]
    for vector in fleets:
        vector.reset(seed=1)
        vector.action_space.seed(1)
    for _ in range(20):
        first, second = (vector.step(vector.action_space.sample()) for vector in fleets)
        assert all(np.array_equal(a, b) for a, b in zip(first[:4], second[:4], strict=True))


def test_set_state_returns_all_rows_to_the_moment_of_get_state():
    vector = DelayTimersVectorEnv(3, **SMALL)
    vector.reset(seed=0)
    vector.action_space.seed(0)
    plans = [vector.action_space.sample() for _ in range(20)]
    vector.step(plans[0])
    state = vector.get_state()
    ahead = [vector.step(plan)[:4] for plan in plans]
    vector.set_state(state)
    again = [vector.step(plan)[:4] for plan in plans]
    assert all(np.array_equal(a, b) for x, y in zip(ahead, again, strict=True) for a, b in zip(x, y, strict=True))


def test_wrappers_of_gymnasium_go_around_it():
    vector = gym.make_vec("ddl_gym/DelayTimers-v0", num_envs=2, vectorization_mode="vector_entry_point", **SMALL)
    vector = gym.wrappers.vector.RecordEpisodeStatistics(vector)
    vector.reset(seed=0)
    for _ in range(60):
        *_, infos = vector.step(np.zeros((2, 2), np.float32))
        if "episode" in infos:
            row = int(np.argmax(infos["_episode"]))
            assert infos["episode"]["r"][row] == pytest.approx(infos["summary"]["return"][row], rel=1e-6)
            assert infos["episode"]["l"][row] == infos["summary"]["decisions"][row]
            return
    pytest.fail("no episode ended")


def test_single_wrappers_of_gymnasium_go_around_it():
    env = gym.make("ddl_gym/DelayTimers-v0", max_episode_steps=2, **SMALL)
    env = gym.wrappers.FlattenObservation(gym.wrappers.RecordEpisodeStatistics(env))
    env.reset(seed=0)
    env.step(np.zeros(2, np.float32))
    *_, truncated, info = env.step(np.zeros(2, np.float32))
    assert truncated
    assert info["episode"]["l"] == 2


def test_masks_leave_one_rack_timer_on_a_single_rack():
    vector = VECTOR_ENVS["ddl_gym/DelayTimersDiscrete-v0"](2, **SMALL | {"cluster": "1x4x8"})
    vector.reset(seed=0)
    levels = vector.single_action_space.nvec[0]
    assert vector.action_masks().tolist() == [[True] * levels + [True] + [False] * (levels - 1)] * 2
    with pytest.raises(AttributeError, match="no masks"):
        DelayTimersVectorEnv(2, **SMALL).action_masks()


class TestStableBaselines3:
    """The VecEnv over the native vector env, and SB3's own check of the single envs."""

    @pytest.fixture(autouse=True)
    def _needs_sb3(self):
        pytest.importorskip("stable_baselines3", reason="needs the extra 'train'")

    @pytest.mark.parametrize("env_id", ddl_gym.ENV_IDS)
    def test_sb3_accepts_every_id(self, env_id):
        from stable_baselines3.common.env_checker import check_env

        check_env(gym.make(env_id, **SMALL).unwrapped)

    def test_a_finished_row_brings_its_last_observation_and_statistics(self):
        vec = make_sb3_vec_env("ddl_gym/DelayTimers-v0", 3, seed=0, **SMALL)
        native = DelayTimersVectorEnv(3, **SMALL)
        assert np.array_equal(vec.reset(), native.reset(seed=0)[0])
        actions, over = np.zeros((3, 2), np.float32), np.zeros(3, bool)
        lengths = np.zeros(3, int)
        for _ in range(200):
            observations, rewards, dones, infos = vec.step(actions)
            expected, paid, terminated, *_ = native.step(actions)
            lengths += 1
            assert rewards.dtype == np.float32
            if dones.any():
                row = int(np.argmax(dones))
                assert terminated[row]
                assert np.array_equal(infos[row]["terminal_observation"], expected[row])
                assert infos[row]["episode"]["l"] == lengths[row]
                assert infos[row]["episode"]["r"] == pytest.approx(infos[row]["summary"]["return"])
                assert not infos[row]["TimeLimit.truncated"]
                return
            assert np.array_equal(observations, expected)
            assert np.array_equal(rewards, paid.astype(np.float32))
        pytest.fail(f"no episode ended, {over}")

    @pytest.mark.parametrize("env_id", ["ddl_gym/DelayTimers-v0", "ddl_gym/ClassTimers-v0"])
    def test_ppo_trains_and_is_evaluated(self, env_id):
        from stable_baselines3 import PPO
        from stable_baselines3.common.evaluation import evaluate_policy

        vec = make_sb3_vec_env(env_id, 4, seed=0, **SMALL)
        model = PPO("MlpPolicy", vec, n_steps=16, batch_size=32, n_epochs=1, seed=0, device="cpu")
        before = model.policy.action_net.weight.detach().clone()
        model.learn(128)
        assert not np.array_equal(before.numpy(), model.policy.action_net.weight.detach().numpy())
        mean, _ = evaluate_policy(model, vec, n_eval_episodes=4)
        assert -100 < mean < 0

    @pytest.mark.parametrize("env_id", ["ddl_gym/DelayTimersDiscrete-v0", "ddl_gym/JobOffer-v0"])
    def test_maskable_ppo_trains(self, env_id):
        MaskablePPO = pytest.importorskip("sb3_contrib").MaskablePPO
        vec = make_sb3_vec_env(env_id, 4, seed=0, **SMALL)
        model = MaskablePPO("MlpPolicy", vec, n_steps=16, batch_size=32, n_epochs=1, seed=0, device="cpu")
        model.learn(128)
        assert model.num_timesteps == 128

    def test_dqn_trains_on_offers(self):
        from stable_baselines3 import DQN

        env = gym.make("ddl_gym/JobOffer-v0", **SMALL)
        model = DQN("MlpPolicy", env, learning_starts=20, buffer_size=200, seed=0, device="cpu")
        model.learn(100)
        assert model.num_timesteps == 100

    def test_an_unknown_id_is_named(self):
        with pytest.raises(ValueError, match="unknown environment 'CartPole-v1'"):
            make_sb3_vec_env("CartPole-v1", 1)
