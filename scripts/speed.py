"""How fast is the simulator here? Medians of repeats of each case, printed and written as JSON.

    .venv/bin/python scripts/speed.py --out speed.json [--repeats 5] [--philly philly_jobs.csv] [--only NAME ...]

Compiled, one core, policy `dally` (preemption, upgrade and auto-tuner on). A case's time is that of Simulator.run() alone; each case
runs in a process of its own, so that its peak memory is its own.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "poisson_100k": {"jobs": 100_000, "cluster": "2048", "preset": "philly_poisson"},
    "batch_10k": {"jobs": 10_000, "cluster": "512", "preset": "philly_batch"},
    "distributed_batch_10k": {"jobs": 10_000, "cluster": "512", "preset": "distributed_batch"},
    "poisson_1m": {"jobs": 1_000_000, "cluster": "8192", "preset": "philly_poisson"},
    "batch_1m": {"jobs": 1_000_000, "cluster": "8192", "preset": "philly_batch"},
    "growth_20k": {"jobs": 20_000, "cluster": "2048", "preset": "philly_poisson"},
    "growth_200k": {"jobs": 200_000, "cluster": "2048", "preset": "philly_poisson"},
    "philly_trace": {"cluster": "2496"},
}


def measure(case: dict[str, Any], repeats: int, policy: str) -> dict[str, Any]:
    """Run one case in this process; JSON-able."""
    from dataclasses import replace

    from ddl_gym.cluster import parse_cluster
    from ddl_gym.policies import named_policy
    from ddl_gym.simulator import Simulator
    from ddl_gym.trace import read_trace
    from ddl_gym.workload import PRESETS

    cluster = parse_cluster(case["cluster"])
    if "trace" in case:
        jobs = read_trace(case["trace"]).jobs
    else:
        jobs = replace(PRESETS[case["preset"]], jobs=case["jobs"]).generate(cluster.gpus, seed=0)
    Simulator(cluster, jobs.take(slice(0, 10)), named_policy(policy)).run()
    seconds = []
    for _ in range(repeats):
        simulator = records = None  # release the last run before the next is laid out
        simulator = Simulator(cluster, jobs, named_policy(policy))
        began = time.perf_counter()
        records = simulator.run()
        seconds.append(time.perf_counter() - began)
    median = statistics.median(seconds)
    return {
        "policy": policy,
        "jobs": jobs.jobs,
        "gpus": cluster.gpus,
        "seconds": seconds,
        "median_s": median,
        "jobs_per_s": jobs.jobs / median,
        "events": simulator.events,
        "ns_per_event": median / simulator.events * 1e9,
        "preemptions": int(records.preemptions.sum()),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def environments(repeats: int, decision_s: float) -> dict[str, Any]:
    """Decisions/s of the environments against events/s of the bare kernel; 512 GPUs, 512 jobs an episode, a decision a round.

    The decision interval sets how many events a decision covers, and over how many decisions a reset is spread.
    """
    import gymnasium as gym
    import numpy as np

    import ddl_gym
    from ddl_gym.simulator import Simulator

    row: dict[str, Any] = {}
    settings = {"cluster": "512", "jobs": 512, "network_congestion": 4.0, "load": 1.0}
    settings |= {"decision_s": decision_s, "round_s": decision_s}
    env = gym.make("ddl_gym/DelayTimers-v0", disable_env_checker=True, **settings).unwrapped
    env.reset(seed=0)
    episode = env.fleet.drawer.draw(np.random.default_rng(0), env.fleet.drawn[0])
    kernel_s, events = [], 0
    for _ in range(repeats + 1):
        simulator = Simulator(env.fleet.cluster, episode.jobs, env.fleet.policy, tables=episode.tables)
        began = time.perf_counter()
        simulator.run()
        kernel_s.append(time.perf_counter() - began)
        events = simulator.events
    row["kernel_events_per_s"] = events / statistics.median(kernel_s[1:])
    for env_id in ddl_gym.ENV_IDS:
        env = gym.make(env_id, disable_env_checker=True, **settings).unwrapped
        env.action_space.seed(0)
        plan = [env.action_space.sample() for _ in range(64)]
        rates, vector_rates, event_rates = [], [], []
        for _ in range(repeats):
            env.reset(seed=0)
            steps, began = 0, time.perf_counter()
            while steps < 4_000:
                *_, terminated, truncated, _ = env.step(plan[steps % 64])
                steps += 1
                if terminated or truncated:
                    env.reset()
            rates.append(steps / (time.perf_counter() - began))
        envs = gym.make_vec(env_id, num_envs=256, vectorization_mode="vector_entry_point", **settings)
        envs.action_space.seed(0)
        plan = [envs.action_space.sample() for _ in range(16)]
        envs.reset(seed=0)
        for _ in range(repeats):
            before, began = envs.unwrapped.fleet.worlds.clock["events"].sum(), time.perf_counter()
            for step in range(100):
                envs.step(plan[step % 16])
            seconds = time.perf_counter() - began
            vector_rates.append(100 * 256 / seconds)
            event_rates.append((envs.unwrapped.fleet.worlds.clock["events"].sum() - before) / seconds)
        row[env_id] = {
            "make_steps_per_s": statistics.median(rates),
            "make_vec_256_decisions_per_s": statistics.median(vector_rates),
            "make_vec_256_events_per_s": statistics.median(event_rates),
        }
        envs.close()
    return row


def start_up(repeats: int) -> dict[str, float]:
    """Seconds of `ddl-gym simulate six_jobs` with an empty compilation cache (once) and with a warm one (median)."""
    command = [sys.executable, "-m", "ddl_gym.cli", "simulate", "six_jobs", "--policy", "dally", "--cluster", "2x2x4"]
    with tempfile.TemporaryDirectory() as cache:
        seconds = []
        for _ in range(repeats + 1):
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=os.environ | {"NUMBA_CACHE_DIR": cache})
            seconds.append(time.perf_counter() - began)
    return {"cold_s": seconds[0], "warm_s": statistics.median(seconds[1:])}


def main() -> None:
    """Parse, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--policy", default="dally")
    parser.add_argument("--philly", type=Path, help="the cleaned Philly job list, for the case philly_trace")
    parser.add_argument("--only", nargs="*", choices=[*CASES, "environments", "start_up"], help="cases to run")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case is not None:
        print(json.dumps(measure(json.loads(arguments.case), arguments.repeats, arguments.policy)))
        return
    results: dict[str, Any] = {}
    for name, case in CASES.items():
        if arguments.only and name not in arguments.only:
            continue
        if name == "philly_trace":
            if arguments.philly is None:
                print(f"{name:24s} skipped: give --philly")
                continue
            case = case | {"trace": str(arguments.philly)}
        child = [sys.executable, __file__, "--case", json.dumps(case), "--repeats", str(arguments.repeats)]
        child += ["--policy", arguments.policy]
        row = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
        results[name] = row
        print(
            f"{name:24s} {row['jobs']:>9,} jobs {row['gpus']:>6,} GPUs  median {row['median_s']:8.3f} s "
            f"{row['jobs_per_s']:>12,.0f} jobs/s {row['ns_per_event']:6.0f} ns/event {row['preemptions']:>9,} preemptions "
            f"{row['peak_memory_mib']:6.0f} MiB",
            flush=True,
        )
    if {"growth_20k", "growth_200k"} <= results.keys():
        ratio = results["growth_20k"]["jobs_per_s"] / results["growth_200k"]["jobs_per_s"] - 1
        results["growth"] = {"cost_per_job_growth": ratio}
        print(f"cost per job, 20,000 -> 200,000 jobs: {ratio:+.0%}")
    if not arguments.only or "environments" in arguments.only:
        for decision_s in (60.0, 300.0):
            rows = results[f"environments_{decision_s:.0f}s"] = environments(arguments.repeats, decision_s)
            print(f"a decision every {decision_s:.0f} s; bare kernel: {rows['kernel_events_per_s']:,.0f} events/s")
            for name, row in rows.items():
                if not isinstance(row, dict):
                    continue
                print(
                    f"{name:32s} make {row['make_steps_per_s']:>9,.0f} steps/s   make_vec(256) "
                    f"{row['make_vec_256_decisions_per_s']:>9,.0f} decisions/s, "
                    f"{row['make_vec_256_events_per_s'] / row['make_vec_256_decisions_per_s']:5.1f} events a decision"
                )
    if not arguments.only or "start_up" in arguments.only:
        results["start_up"] = start_up(arguments.repeats)
        print("start-up of simulate six_jobs: cold {cold_s:.1f} s, warm {warm_s:.2f} s".format(**results["start_up"]))
    if arguments.out:
        import numba
        import numpy as np

        record = {
            "command": sys.argv,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
            "results": results,
        }
        temporary = arguments.out.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=2) + "\n")
        temporary.replace(arguments.out)


if __name__ == "__main__":
    main()
