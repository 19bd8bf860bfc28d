"""Write the table of README.md anew from the results of `scripts/run`.

scripts/run && .venv/bin/python scripts/readme_table.py [--results results/benchmark/diurnal_congested]
"""

import argparse
import json
from pathlib import Path
from typing import Any

from ddl_gym.report import duration_text

README = Path(__file__).parents[1] / "README.md"
END = "<!-- end -->"


def table(policies: list[dict[str, float]]) -> str:
    """Markdown, changes against the first row."""
    lines = [
        "| policy | makespan | mean JCT | mean queueing delay | communication | preemptions |",
        "|---|---|---|---|---|---|",
    ]
    first = policies[0]
    for row in policies:
        changes = [f"{row[name] / first[name] - 1:+.0%}" for name in ("makespan_s", "mean_jct_s")]
        lines.append(
            f"| `{row['policy']}` | {duration_text(row['makespan_s'])} ({changes[0]}) | {duration_text(row['mean_jct_s'])} "
            f"({changes[1]}) | {duration_text(row['mean_queueing_s'])} | {row['communication_share']:.0%} | {row['preemptions']:,} |"
        )
    return "\n".join(lines)


def speed_table(record: dict[str, Any]) -> str:
    """Markdown of a speed.json: simulator cases, then environments."""
    lines = ["| case, policy `dally` | jobs | GPUs | median | jobs/s | peak memory |", "|---|---|---|---|---|---|"]
    results = record["results"]
    for name, row in results.items():
        if "jobs_per_s" in row:
            lines.append(
                f"| `{name}` | {row['jobs']:,} | {row['gpus']:,} | {row['median_s']:.3f} s | {row['jobs_per_s']:,.0f} "
                f"| {row['peak_memory_mib']:,.0f} MiB |"
            )
    lines += [
        "",
        "| environment | decision every | `make`, steps/s | `make_vec(256)`, decisions/s | events a decision |",
    ]
    lines.append("|---|---|---|---|---|")
    for interval in ("60s", "300s"):
        for name, row in results[f"environments_{interval}"].items():
            if isinstance(row, dict):
                steps, decisions = row["make_steps_per_s"], row["make_vec_256_decisions_per_s"]
                events = row["make_vec_256_events_per_s"] / decisions
                lines.append(f"| `{name}` | {interval} | {steps:,.0f} | {decisions:,.0f} | {events:.1f} |")
    start = results["start_up"]
    lines += [
        "",
        f"`ddl-gym simulate six_jobs`: {start['cold_s']:.0f} s with compilation, {start['warm_s']:.1f} s afterwards.",
    ]
    return "\n".join(lines)


def replaced(text: str, name: str, table: str) -> str:
    """The text with the table between `<!-- name -->` and the next end mark."""
    begin = f"<!-- {name} -->"
    before, found, rest = text.partition(begin)
    if not found:
        raise SystemExit(f"README.md has no mark {begin}")
    _, _, after = rest.partition(END)
    return f"{before}{begin}\n\n{table}\n\n{END}{after}"


def main() -> None:
    """Replace what lies between the marks, for the result files that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--benchmark", type=Path, default=Path("results/benchmark/diurnal_congested/summary.json"))
    parser.add_argument("--speed", type=Path, default=Path("results/speed.json"))
    arguments = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    if arguments.benchmark.exists():
        text = replaced(text, "benchmark table", table(json.loads(arguments.benchmark.read_text())["policies"]))
    if arguments.speed.exists():
        text = replaced(text, "speed table", speed_table(json.loads(arguments.speed.read_text())))
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
