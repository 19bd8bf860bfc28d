"""Register an environment with RLlib and train PPO for a few iterations.

RLlib is heavy and not among the pinned packages; install it beside them, then run:

    .venv/bin/pip install "ray[rllib]>=2.40"
    .venv/bin/python scripts/rllib_example.py --iterations 3

`create` is the creator that any RLlib configuration can use; the keys of `env_config` are the environment's keyword arguments.
"""

import argparse
import sys
from typing import Any

import gymnasium as gym

import ddl_gym  # noqa: F401  registers the environments


def create(config: dict[str, Any]) -> gym.Env[Any, Any]:
    """The environment `config["id"]` with the other entries as its arguments."""
    arguments = dict(config)
    return gym.make(arguments.pop("id", "ddl_gym/DelayTimers-v0"), **arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--env-runners", type=int, default=1)
    arguments = parser.parse_args()
    try:
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.tune.registry import register_env
    except ImportError:
        print('RLlib is not installed; run: .venv/bin/pip install "ray[rllib]>=2.40"', file=sys.stderr)
        sys.exit(2)
    register_env("ddl_gym_delay_timers", create)
    config = (
        PPOConfig()
        .environment("ddl_gym_delay_timers", env_config={"cluster": "128", "jobs": 256, "baseline": "auto_tuner"})
        .env_runners(num_env_runners=arguments.env_runners, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=2_000, minibatch_size=500, num_epochs=4, gamma=0.995)
    )
    algorithm = config.build_algo()
    for iteration in range(arguments.iterations):
        result = algorithm.train()
        print(iteration, result["env_runners"].get("episode_return_mean"))
    algorithm.stop()


if __name__ == "__main__":
    main()
