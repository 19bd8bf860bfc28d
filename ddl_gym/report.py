"""How are results shown and kept? Tables, plots and result files."""

import csv
import hashlib
import json
import platform
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobRecords
from ddl_gym.metrics import Summary
from ddl_gym.simulator import Segments

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

TIER_COLOURS = ("#0072b2", "#e69f00", "#d55e00")  # MACHINE, RACK, NETWORK; distinguishable without red and green
TIER_NAMES = ("machine", "rack", "network")
_GANTT_ROWS = 64  # machines shown at most
_GANTT_BARS = 4_000  # bars shown at most: a longer run shows its first part


class Run(NamedTuple):
    """A finished simulation of one policy."""

    policy: str
    records: JobRecords
    summary: Summary
    segments: Segments | None = None


def duration_text(seconds: float | None) -> str:
    """Seconds in the unit that reads best: 42 s, 3.1 min, 2.50 h, 1.2 d."""
    if seconds is None or np.isnan(seconds):
        return "-"
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


# Column: (header, field, form, whether less is better; None marks no best)
_COLUMNS: tuple[tuple[str, str, str, bool | None], ...] = (
    ("makespan", "makespan_s", "time", True),
    ("mean JCT", "mean_jct_s", "time", True),
    ("p99 JCT", "p99_jct_s", "time", True),
    ("mean queueing", "mean_queueing_s", "time", True),
    ("comm. share", "communication_share", "share", True),
    ("utilization", "utilization", "share", None),
    ("GPU time at network tier", "network_time_share", "share", True),
    ("preemptions", "preemptions", "count", None),
    ("unfinished", "unfinished", "count", True),
)


def comparison_table(runs: list[Run], title: str) -> "Table":
    """A rich table, a row a policy: each metric with its change against the first row; the best value of a column is bold."""
    from rich.table import Table

    table = Table(title=title, caption=f"in brackets: change against {runs[0].policy}; bold: best")
    table.add_column("policy")
    for header, *_ in _COLUMNS:
        table.add_column(header, justify="right")
    best = {
        field: min((value for run in runs if (value := getattr(run.summary, field)) == value), default=None)
        for _, field, _, less in _COLUMNS
        if less
    }
    for run in runs:
        cells = []
        for _, field, form, less in _COLUMNS:
            value, base = getattr(run.summary, field), getattr(runs[0].summary, field)
            text = _cell_text(value, form)
            if form == "time" and run is not runs[0] and base and value == value:
                text += f" ({value / base - 1:+.1%})"
            if less and len(runs) > 1 and value == best[field] and form != "count":
                text = f"[bold]{text}[/bold]"
            cells.append(text)
        table.add_row(run.policy, *cells)
    return table


def _cell_text(value: float, form: str) -> str:
    if form == "count":
        return f"{value:,}"
    if form == "time":
        return duration_text(value)
    return "-" if np.isnan(value) else f"{value:.1%}"


def provenance(trace: Path | str | None = None, **choices: Any) -> dict[str, Any]:
    """What a result needs to be made again: command, versions, checksum of the trace and the choices made."""
    packages = ("ddl_gym", "numpy", "numba", "pandas", "gymnasium")
    record: dict[str, Any] = {
        "command": sys.argv,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in packages},
    }
    if trace is not None:
        record["trace"] = str(trace)
        record["trace_sha256"] = hashlib.sha256(Path(trace).read_bytes()).hexdigest()
    return record | choices


def write_results(directory: Path, runs: list[Run], cluster: ClusterSpec, record: dict[str, Any]) -> list[Path]:
    """Write summary.json, jobs.csv, jct_cdf.png and gantt_<policy>.png; all are made beside and moved in when complete."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as made_in:
        made = Path(made_in)
        policies = [{"policy": run.policy} | run.summary.to_dict() for run in runs]
        (made / "summary.json").write_text(json.dumps({"run": record, "policies": policies}, indent=2) + "\n")
        _write_jobs(made / "jobs.csv", runs)
        jct_cdf(runs).savefig(made / "jct_cdf.png", dpi=120)
        for run in runs:
            if run.segments is not None:
                gantt(run.segments, cluster, run.policy).savefig(made / f"gantt_{run.policy}.png", dpi=120)
        directory.mkdir(exist_ok=True)
        targets = {path: directory / path.name for path in sorted(made.iterdir())}
        for target in targets.values():
            if target.is_dir():
                raise ValueError(f"{target} is a directory, a file of this name is to be written; nothing was written")
        for path, target in targets.items():
            path.replace(target)
        written = list(targets.values())
    return written


def _write_jobs(path: Path, runs: list[Run]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        for number, run in enumerate(runs):
            frame = run.records.to_frame()
            frame.insert(0, "policy", run.policy)
            frame.to_csv(file, index=False, header=number == 0, quoting=csv.QUOTE_MINIMAL)


def jct_cdf(runs: list[Run]) -> "Figure":
    """Share of jobs finished within a time, a curve a policy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    styles = ("-", "--", "-.", ":")
    for number, run in enumerate(runs):
        jct_s = np.sort(run.records.finish_s - run.records.submit_s)
        jct_s = jct_s[~np.isnan(jct_s)]
        if len(jct_s) > 0:
            shares = np.arange(1, len(jct_s) + 1) / len(jct_s)
            axes.step(jct_s / 3600, shares, where="post", label=run.policy, linestyle=styles[number // 10 % 4])
    axes.set_xscale("log")
    axes.set_xlabel("job completion time, hours")
    axes.set_ylabel("share of jobs")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)
    axes.legend(title="policy")
    return figure


def gantt(segments: Segments, cluster: ClusterSpec, title: str) -> "Figure":
    """Machines over time: a bar for each stretch of running, as high as its share of the machine, coloured by tier."""
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    shown = np.flatnonzero(segments.machine < _GANTT_ROWS)
    shown = shown[np.argsort(segments.start_s[shown], kind="stable")][:_GANTT_BARS]
    machines = min(cluster.machines, _GANTT_ROWS)
    figure = Figure(figsize=(12, min(10.0, 1.5 + 0.14 * machines)), layout="constrained")
    axes = figure.add_subplot()
    corners, colours = [], []
    stacks = _stack(segments, shown)
    for row, low in zip(shown, stacks, strict=True):
        bottom = segments.machine[row] + low / cluster.gpus_per_machine
        top = bottom + segments.gpus[row] / cluster.gpus_per_machine
        start, end = segments.start_s[row] / 3600, segments.end_s[row] / 3600
        corners.append([(start, bottom), (end, bottom), (end, top), (start, top)])
        colours.append(TIER_COLOURS[segments.tier[row]])
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors="white", linewidths=0.3))
    for rack in range(0, machines + 1, cluster.machines_per_rack):
        axes.axhline(rack, color="black", linewidth=0.6)
    axes.set_xlim(0, max((segments.end_s[shown] / 3600).max(initial=0.0), 1e-9))
    axes.set_ylim(machines, 0)
    axes.set_xlabel("time, hours")
    axes.set_ylabel("machine (lines: racks)")
    part = "" if len(shown) == len(segments.job) else f", first {len(shown):,} of {len(segments.job):,} stretches"
    axes.set_title(f"{title}: GPUs held, by placement tier{part}")
    axes.legend(
        handles=[Patch(color=c, label=name) for c, name in zip(TIER_COLOURS, TIER_NAMES, strict=True)],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )
    return figure


def _stack(segments: Segments, rows: Any) -> list[int]:
    """Where each stretch lies among the GPUs of its machine: the lowest run of GPUs that is free at its start, as drawn."""
    busy: dict[int, list[tuple[float, int, int]]] = {}
    lows = []
    for row in rows:
        start, end, gpus = segments.start_s[row], segments.end_s[row], int(segments.gpus[row])
        others = [bar for bar in busy.get(int(segments.machine[row]), []) if bar[0] > start]
        low = 0
        for _, other_low, other_high in sorted(others, key=lambda bar: bar[1]):
            if low + gpus <= other_low:
                break
            low = max(low, other_high)
        others.append((end, low, low + gpus))
        busy[int(segments.machine[row])] = others
        lows.append(low)
    return lows
