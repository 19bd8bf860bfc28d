"""The `ddl-gym` command: simulate, compare, describe and policies."""

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from ddl_gym.cluster import ClusterSpec
    from ddl_gym.jobs import JobTable
    from ddl_gym.network import Network
    from ddl_gym.policies import Policy
    from ddl_gym.report import Run

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help="Simulate GPU-cluster schedulers."
)

_INTERRUPTED = 130  # exit code after Ctrl-C

TraceArgument = Annotated[str, typer.Argument(help="A CSV file or the name of a bundled trace.")]
ClusterOption = Annotated[
    str, typer.Option(help="A preset (64, 128, 512, 2048, 2496, 8192) or RACKSxMACHINESxGPUS[@GPU].")
]
NetworkOption = Annotated[str, typer.Option(help="uncongested, busy, congested or jammed.")]
RackOption = Annotated[float | None, typer.Option(help="Factor that divides the bandwidth inside racks.")]
AcrossOption = Annotated[float | None, typer.Option(help="Factor that divides the bandwidth across racks.")]
MachineTimerOption = Annotated[float | None, typer.Option(help="Machine timer in seconds, or inf.")]
RackTimerOption = Annotated[float | None, typer.Option(help="Rack timer in seconds, or inf.")]
LoadOption = Annotated[float | None, typer.Option(help="Stretch submissions to this offered load.")]
MixOption = Annotated[str, typer.Option(help="Model mix for jobs that name no model.")]
SeedOption = Annotated[int, typer.Option(help="Seed of that assignment.")]
RestoreOption = Annotated[float, typer.Option(help="Seconds that a restart costs.")]
SkipOption = Annotated[bool, typer.Option("--skip-invalid", help="Leave out rows with a bad value, and list them.")]
OutOption = Annotated[Path | None, typer.Option(help="Directory for summary.json, jobs.csv and plots.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the summaries as JSON.")]


class Setting(NamedTuple):
    """All that a simulation command was asked for, checked."""

    trace: Path
    jobs: "JobTable"
    cluster: "ClusterSpec"
    network: "Network"
    restore_s: float
    choices: dict[str, Any]


@app.command()
def simulate(
    trace: TraceArgument,
    policy: Annotated[str, typer.Option(help="Name of a policy, see `ddl-gym policies`.")] = "dally",
    cluster: ClusterOption = "512",
    network: NetworkOption = "uncongested",
    rack_congestion: RackOption = None,
    network_congestion: AcrossOption = None,
    machine_timer: MachineTimerOption = None,
    rack_timer: RackTimerOption = None,
    load: LoadOption = None,
    mix: MixOption = "default",
    seed: SeedOption = 0,
    restore_s: RestoreOption = 60.0,
    skip_invalid: SkipOption = False,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one policy on a trace."""
    chosen = _policies(policy, machine_timer, rack_timer)
    setting = _setting(
        trace, cluster, network, rack_congestion, network_congestion, load, mix, seed, restore_s, skip_invalid, out
    )
    _run_all(setting, chosen, out, as_json)


@app.command()
def compare(
    trace: TraceArgument,
    policies: Annotated[str, typer.Option(help="Names separated by commas; the first is the baseline.")] = "all",
    cluster: ClusterOption = "512",
    network: NetworkOption = "uncongested",
    rack_congestion: RackOption = None,
    network_congestion: AcrossOption = None,
    machine_timer: MachineTimerOption = None,
    rack_timer: RackTimerOption = None,
    load: LoadOption = None,
    mix: MixOption = "default",
    seed: SeedOption = 0,
    restore_s: RestoreOption = 60.0,
    skip_invalid: SkipOption = False,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run several policies on the same trace and print a table."""
    chosen = _policies(policies, machine_timer, rack_timer)
    setting = _setting(
        trace, cluster, network, rack_congestion, network_congestion, load, mix, seed, restore_s, skip_invalid, out
    )
    _run_all(setting, chosen, out, as_json)


@app.command()
def describe(
    trace: TraceArgument,
    cluster: Annotated[str | None, typer.Option(help="For the offered load.")] = None,
    mix: MixOption = "default",
    seed: SeedOption = 0,
    skip_invalid: SkipOption = False,
) -> None:
    """Print statistics of a trace as JSON."""
    from ddl_gym.cluster import parse_cluster
    from ddl_gym.trace import check_fits, read_trace, resolve_trace, summarise

    shape = parse_cluster(cluster) if cluster is not None else None
    read = read_trace(resolve_trace(trace), mix=mix, seed=seed, skip_invalid=skip_invalid)
    if shape is not None:
        check_fits(read.jobs, shape)
    _tell_skipped(read.skipped)
    about = {"source": read.source, "format": read.format, "rows_read": read.rows_read, "skipped": len(read.skipped)}
    print(json.dumps(about | summarise(read.jobs, shape), indent=2))


@app.command(name="policies")
def list_policies() -> None:
    """List the named policies and their parts."""
    from rich.table import Table

    from ddl_gym.policies import POLICIES

    table = Table(title="Policies")
    for header in ("name", "queue order", "placement", "machine / rack timer", "preemption", "upgrade"):
        table.add_column(header)
    for name, policy in POLICIES.items():
        timers = "auto-tuned" if policy.auto_tuner else f"{policy.machine_timer_s:g} / {policy.rack_timer_s:g} s"
        preemption = f"margin {policy.preemption_margin:g}" if policy.preemption else "no"
        placement = policy.placement.name.lower()
        table.add_row(name, policy.order.name.lower(), placement, timers, preemption, "yes" if policy.upgrade else "no")
    _console().print(table)


def _policies(names: str, machine_timer: float | None, rack_timer: float | None) -> "list[Policy]":
    """The chosen policies, with timers replaced where given and the policy has timers of its own."""
    from ddl_gym.policies import POLICIES, named_policy

    chosen = [named_policy(name.strip()) for name in (POLICIES if names == "all" else names.split(","))]
    if len({policy.name for policy in chosen}) < len(chosen):
        raise ValueError(f"--policies names a policy twice: {names}")
    for option, value in (("--machine-timer", machine_timer), ("--rack-timer", rack_timer)):
        if value is not None and (isnan(value) or value < 0):
            raise ValueError(f"{option} is {value}, it must be 0 or more")
    if machine_timer is None and rack_timer is None:
        return chosen
    return [
        replace(
            policy,
            machine_timer_s=policy.machine_timer_s if machine_timer is None else machine_timer,
            rack_timer_s=policy.rack_timer_s if rack_timer is None else rack_timer,
        )
        for policy in chosen
    ]


def _setting(
    trace: str,
    cluster: str,
    network: str,
    rack_congestion: float | None,
    network_congestion: float | None,
    load: float | None,
    mix: str,
    seed: int,
    restore_s: float,
    skip_invalid: bool,
    out: Path | None,
) -> Setting:
    """Check everything before anything runs."""
    from ddl_gym.cluster import parse_cluster
    from ddl_gym.network import NETWORKS
    from ddl_gym.trace import check_fits, read_trace, resolve_trace, scale_load

    shape = parse_cluster(cluster)
    if network not in NETWORKS:
        raise ValueError(f"unknown network {network!r}; known: {', '.join(NETWORKS)}")
    given = {"rack_congestion": rack_congestion, "network_congestion": network_congestion}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    state = replace(NETWORKS[network], **changes)
    if isnan(restore_s) or not 0 <= restore_s < float("inf"):
        raise ValueError(f"--restore-s is {restore_s}, it must be 0 or more and finite")
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file, it must be a directory")
    if out is not None:
        _check_writable(out)
    path = resolve_trace(trace)
    read = read_trace(path, mix=mix, seed=seed, skip_invalid=skip_invalid)
    check_fits(read.jobs, shape)
    jobs = read.jobs if load is None else scale_load(read.jobs, shape, load)
    _tell_skipped(read.skipped)
    choices = {
        "cluster": str(shape),
        "network": network,
        "load": load,
        "mix": mix,
        "seed": seed,
        "restore_s": restore_s,
    }
    choices |= {name: getattr(state, name) for name in given} | {"skipped": len(read.skipped)}
    return Setting(path, jobs, shape, state, restore_s, choices)


def _check_writable(out: Path) -> None:
    """Make sure, before anything runs, that the results can be written beside `out`; nothing is left there."""
    place = next(parent for parent in (out.absolute(), *out.absolute().parents) if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=place):
            pass
        out.name.encode()
        if len(out.name) > 200 or out.is_symlink():
            raise OSError("the name is too long or a link")
    except OSError as error:
        raise ValueError(f"--out {out} cannot be written: {error.strerror or error}") from None


def _tell_skipped(skipped: list[tuple[int, str]]) -> None:
    if not skipped:
        return
    print(f"skipped {len(skipped)} rows:", file=sys.stderr)
    for row, reason in skipped[:20]:
        print(f"  row {row}: {reason}", file=sys.stderr)
    if len(skipped) > 20:
        print(f"  ... and {len(skipped) - 20} more", file=sys.stderr)


def _run_all(setting: Setting, policies: "list[Policy]", out: Path | None, as_json: bool) -> None:
    from ddl_gym.report import comparison_table, provenance, write_results

    with _progress(len(policies)) as tell:
        runs = [_run(setting, policy, out is not None, tell) for policy in policies]
    if as_json:
        print(json.dumps([{"policy": run.policy} | run.summary.to_dict() for run in runs], indent=2))
    else:
        name = setting.trace.stem
        title = f"{name}: {setting.jobs.jobs:,} jobs on {setting.cluster.gpus:,} GPUs ({setting.cluster})"
        _console().print(comparison_table(runs, title))
    if out is not None:
        for path in write_results(out, runs, setting.cluster, provenance(setting.trace, **setting.choices)):
            print(f"wrote {path}", file=sys.stderr)


def _run(setting: Setting, policy: "Policy", log: bool, tell: Callable[[str, int, int], None]) -> "Run":
    from ddl_gym.metrics import summarise
    from ddl_gym.report import Run
    from ddl_gym.simulator import Simulator

    simulator = Simulator(
        setting.cluster, setting.jobs, policy, network=setting.network, restore_s=setting.restore_s, log=log
    )
    with _slow_start_told():
        simulator.advance(0.0)
    records = simulator.run(lambda finished, jobs: tell(policy.name, finished, jobs))
    segments = simulator.segments() if log else None
    return Run(policy.name, records, summarise(records, setting.cluster), segments)


def _console() -> "Console":
    """Standard output, wide enough for the tables where it is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200)


@contextmanager
def _slow_start_told() -> Iterator[None]:
    """Say so when the first call takes long because the kernel is compiled."""
    message = "compiling the simulator (once for this version; up to 40 s) ..."
    timer = threading.Timer(1.5, lambda: print(message, file=sys.stderr, flush=True))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _progress(policies: int) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda policy, finished, jobs: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, Any] = {}

        def tell(policy: str, finished: int, jobs: int) -> None:
            if policy not in tasks:
                tasks[policy] = progress.add_task(f"{policy} ({len(tasks) + 1}/{policies})", total=jobs)
            progress.update(tasks[policy], completed=finished)

        yield tell


def main() -> None:
    """Entry point: a user's mistake is one sentence on stderr and exit code 2, Ctrl-C is exit code 130."""
    if sys.argv[1:] == ["--version"]:
        from ddl_gym import __version__

        print(f"ddl-gym {__version__}")
        return
    try:
        interrupted = app(standalone_mode=False) == _INTERRUPTED
    except (ValueError, OSError) as error:
        print(f"ddl-gym: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        interrupted = True
    except Exception as error:
        if not hasattr(error, "format_message"):  # what all of typer's usage errors have
            raise
        print(f"ddl-gym: {error.format_message() or 'give a command; see ddl-gym --help'}", file=sys.stderr)
        sys.exit(2)
    if interrupted:
        print("ddl-gym: interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
