"""Compare all named schedulers on the bundled traces, print tables and write a report.

    scripts/run [--short] [--out results/benchmark]

Each trace is run on 512 GPUs with an uncongested and with a congested network (rack bandwidth / 2, cross-rack / 20). --short takes one
trace and one network. The directory gets, for each of them, summary.json, jobs.csv and plots, and report.md with all tables.
"""

import argparse
import time
from pathlib import Path

from rich.console import Console

from ddl_gym.cluster import parse_cluster
from ddl_gym.metrics import summarise
from ddl_gym.network import NETWORKS
from ddl_gym.policies import POLICIES
from ddl_gym.report import Run, comparison_table, duration_text, provenance, write_results
from ddl_gym.simulator import Simulator
from ddl_gym.trace import read_trace, resolve_trace

TRACES = ("diurnal", "bursty", "distributed_batch")
STATES = ("congested", "uncongested")
CLUSTER = "512"


def markdown(runs: list[Run], title: str) -> str:
    """The table as Markdown, changes against the first policy."""
    lines = [
        f"## {title}",
        "",
        "| policy | makespan | mean JCT | p99 JCT | communication share | preemptions |",
        "|---|---|---|---|---|---|",
    ]
    first = runs[0].summary
    for run in runs:
        summary = run.summary
        makespan, jct = summary.makespan_s / first.makespan_s - 1, summary.mean_jct_s / first.mean_jct_s - 1
        lines.append(
            f"| {run.policy} | {duration_text(summary.makespan_s)} ({makespan:+.1%}) "
            f"| {duration_text(summary.mean_jct_s)} ({jct:+.1%}) | {duration_text(summary.p99_jct_s)} "
            f"| {summary.communication_share:.1%} | {summary.preemptions:,} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Run every policy on every trace and network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="one trace, one network")
    parser.add_argument("--out", type=Path, default=Path("results/benchmark"))
    arguments = parser.parse_args()
    cluster = parse_cluster(CLUSTER)
    console = Console(width=None if Console().is_terminal else 200)
    report = ["# Schedulers compared", "", f"{cluster.gpus} GPUs ({cluster}); changes against the first row.", ""]
    began = time.perf_counter()
    console.print("the first simulation compiles the kernel (once; up to 40 s) ...")
    for name in TRACES[:1] if arguments.short else TRACES:
        trace = resolve_trace(name)
        jobs = read_trace(trace).jobs
        for state in STATES[:1] if arguments.short else STATES:
            runs = []
            for policy in POLICIES.values():
                simulator = Simulator(cluster, jobs, policy, network=NETWORKS[state], log=True)
                records = simulator.run()
                runs.append(Run(policy.name, records, summarise(records, cluster), simulator.segments()))
            title = f"{name}, {state} network: {jobs.jobs:,} jobs"
            console.print(comparison_table(runs, title))
            report.append(markdown(runs, title))
            record = provenance(trace, cluster=str(cluster), network=state, restore_s=60.0)
            write_results(arguments.out / f"{name}_{state}", runs, cluster, record)
    (arguments.out / "report.md").write_text("\n".join(report))
    console.print(f"wrote {arguments.out}/report.md and the plots beside it ({time.perf_counter() - began:.0f} s)")


if __name__ == "__main__":
    main()
