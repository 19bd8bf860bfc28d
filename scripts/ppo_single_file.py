"""PPO in one file on `gymnasium.make_vec`, in the manner of CleanRL: read it from top to bottom, copy it, change it.

    .venv/bin/python scripts/ppo_single_file.py --total-steps 200000 --out results/ppo.csv

Every field of `Arguments` is a command-line option. The CSV has one row a rollout: steps, steps/s, mean return of the episodes that ended.
"""

import argparse
import csv
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import ddl_gym  # noqa: F401  registers the environments


@dataclass
class Arguments:
    env_id: str = "ddl_gym/DelayTimers-v0"
    cluster: str = "128"
    jobs: int = 256
    num_envs: int = 64
    rollout_steps: int = 64  # per env
    total_steps: int = 200_000
    epochs: int = 4
    minibatches: int = 4
    learning_rate: float = 1e-3
    discount: float = 0.995
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_weight: float = 0.0
    seed: int = 0
    out: str = ""


class Agent(nn.Module):
    """A Gaussian policy that starts at the zero action (the auto-tuner), and a value function."""

    def __init__(self, features: int, components: int):
        super().__init__()
        self.value = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.mean = nn.Sequential(
            nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, components)
        )
        nn.init.zeros_(self.mean[-1].weight)
        nn.init.zeros_(self.mean[-1].bias)
        self.log_std = nn.Parameter(torch.full((components,), -1.0))

    def distribution(self, observations: torch.Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.mean(observations), self.log_std.exp())


def main(arguments: Arguments) -> list[dict[str, float]]:
    """Train; returns the rows of the curve."""
    torch.manual_seed(arguments.seed)
    envs = gym.make_vec(
        arguments.env_id,
        num_envs=arguments.num_envs,
        vectorization_mode="vector_entry_point",
        cluster=arguments.cluster,
        jobs=arguments.jobs,
        baseline="auto_tuner",
    )
    features, components = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
    agent = Agent(features, components)
    optimiser = torch.optim.Adam(agent.parameters(), lr=arguments.learning_rate, eps=1e-5)
    shape = (arguments.rollout_steps, arguments.num_envs)
    observations = torch.zeros((*shape, features))
    actions = torch.zeros((*shape, components))
    log_probs, rewards, dones, values, valid = (torch.zeros(shape) for _ in range(5))

    observation = torch.from_numpy(envs.reset(seed=arguments.seed)[0])
    done = torch.zeros(arguments.num_envs)
    curve: list[dict[str, float]] = []
    steps, began, updates = 0, time.perf_counter(), 0
    while steps < arguments.total_steps:
        returns: list[float] = []
        for t in range(arguments.rollout_steps):
            observations[t], dones[t] = observation, done
            valid[t] = 1 - done  # the step after an end only resets (NEXT_STEP autoreset)
            with torch.no_grad():
                distribution = agent.distribution(observation)
                actions[t] = distribution.sample()
                log_probs[t] = distribution.log_prob(actions[t]).sum(-1)
                values[t] = agent.value(observation).squeeze(-1)
            new, reward, terminated, truncated, infos = envs.step(actions[t].clamp(-1, 1).numpy())
            rewards[t] = torch.from_numpy(reward)
            observation = torch.from_numpy(new)
            done = torch.from_numpy(terminated | truncated).float()
            if "summary" in infos:
                returns += infos["summary"]["return"][infos["_summary"]].tolist()
            steps += arguments.num_envs

        with torch.no_grad():
            advantages = torch.zeros(shape)
            next_value, next_advantage = agent.value(observation).squeeze(-1), torch.zeros(arguments.num_envs)
            next_done = done
            for t in reversed(range(arguments.rollout_steps)):
                error = rewards[t] + arguments.discount * next_value * (1 - next_done) - values[t]
                next_advantage = error + arguments.discount * arguments.gae_lambda * (1 - next_done) * next_advantage
                advantages[t] = next_advantage
                next_value, next_done = values[t], dones[t]
            targets = advantages + values

        kept = valid.flatten().bool()
        batch = [x.flatten(0, 1)[kept] for x in (observations, actions, log_probs, advantages, targets)]
        for _ in range(arguments.epochs):
            for rows in torch.randperm(int(kept.sum())).chunk(arguments.minibatches):
                seen, taken, old_log_prob, advantage, target = (x[rows] for x in batch)
                distribution = agent.distribution(seen)
                ratio = (distribution.log_prob(taken).sum(-1) - old_log_prob).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clamp(1 - arguments.clip, 1 + arguments.clip)
                policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
                value_loss = (agent.value(seen).squeeze(-1) - target).square().mean()
                entropy = distribution.entropy().sum(-1).mean()
                optimiser.zero_grad()
                (policy_loss + 0.5 * value_loss - arguments.entropy_weight * entropy).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimiser.step()
        updates += 1
        curve.append(
            {
                "steps": steps,
                "steps_per_s": steps / (time.perf_counter() - began),
                "improvement_over_auto_tuner": float(np.mean(returns)) if returns else float("nan"),
            }
        )
        print("  ".join(f"{name} {value:,.4g}" for name, value in curve[-1].items()), flush=True)
    envs.close()
    if arguments.out:
        path = Path(arguments.out)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        with temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, curve[0].keys())
            writer.writeheader()
            writer.writerows(curve)
        temporary.replace(path)
        path.with_suffix(".command").write_text(" ".join(sys.argv) + "\n")
    return curve


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Arguments):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    main(Arguments(**vars(parser.parse_args())))
