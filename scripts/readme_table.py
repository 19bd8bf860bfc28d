"""Write the table of README.md anew from the results of `scripts/run`.

scripts/run && .venv/bin/python scripts/readme_table.py [--results results/benchmark/diurnal_congested]
"""

import argparse
import json
from pathlib import Path

from ddl_gym.report import duration_text

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- table: scripts/readme_table.py -->", "<!-- end -->"


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


def main() -> None:
    """Replace what lies between the two comments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/benchmark/diurnal_congested"))
    results = json.loads((parser.parse_args().results / "summary.json").read_text())
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n\n{table(results['policies'])}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
