"""Are the bundled traces what traces/README.md says, and is the six-job one scheduled as worked out by hand there?"""

import hashlib
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ddl_gym.cluster import ClusterSpec, Tier
from ddl_gym.jobs import JobRecords
from ddl_gym.policies import named_policy
from ddl_gym.simulator import Simulator
from ddl_gym.trace import BUNDLED, check_fits, read_trace, resolve_trace, summarise

README = (BUNDLED / "README.md").read_text(encoding="utf-8")
make_traces = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "make_traces.py"))
GENERATED = tuple(make_traces["RECIPES"])

# Worked out by hand (traces/README.md), not computed: job, start, finish, tier, {machine: GPUs}.
SIX_JOBS = (
    ("A", 0, 4000, Tier.RACK, {0: 4, 1: 3}),
    ("B", 0, 900, Tier.MACHINE, {2: 3}),
    ("C", 0, 1000, Tier.MACHINE, {3: 3}),
    ("D", 900, 3300, Tier.MACHINE, {2: 3}),
    ("E", 700, 3211.4117, Tier.RACK, {2: 1, 3: 1}),
    ("F", 2750, 4847.8518, Tier.NETWORK, {3: 3, 1: 1}),
)


def simulate_six_jobs() -> tuple[Simulator, JobRecords]:
    simulator = Simulator(
        ClusterSpec(racks=2, machines_per_rack=2, gpus_per_machine=4),
        read_trace(resolve_trace("six_jobs")).jobs,
        replace(named_policy("fifo"), machine_timer_s=600.0, rack_timer_s=1_800.0),
        log=True,
    )
    return simulator, simulator.run()


def test_six_jobs_start_and_finish_as_worked_out_by_hand():
    _, records = simulate_six_jobs()
    names, starts, finishes, tiers, _ = zip(*SIX_JOBS, strict=True)
    assert records.job_id.tolist() == list(names)
    assert records.start_s.tolist() == list(starts)
    assert records.tier.tolist() == list(tiers)
    # The README's numbers are rounded to 0.1 ms.
    assert records.finish_s.tolist() == pytest.approx(finishes, abs=1e-4)
    assert records.preemptions.sum() == records.moves.sum() == 0


def test_six_jobs_get_the_machines_worked_out_by_hand():
    simulator, _ = simulate_six_jobs()
    segments = simulator.segments()
    held: dict[str, dict[int, int]] = {}
    for job, machine, gpus in zip(segments.job, segments.machine, segments.gpus, strict=True):
        held.setdefault("ABCDEF"[job], {})[int(machine)] = int(gpus)
    assert held == {name: machines for name, _, _, _, machines in SIX_JOBS}


def test_the_readme_lists_every_bundled_trace_with_its_checksum():
    listed = dict(re.findall(r"^\| `(\w+)\.csv` \| `([0-9a-f]{64})` \|$", README, flags=re.MULTILINE))
    assert listed == {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in BUNDLED.glob("*.csv")}


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_trace_is_made_again_byte_for_byte(name):
    assert make_traces["make_bytes"](name) == (BUNDLED / f"{name}.csv").read_bytes()


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_trace_reads_back_as_made(name):
    trace = read_trace(resolve_trace(name))
    assert all(np.array_equal(a, b) for a, b in zip(trace.jobs, make_traces["make"](name), strict=True))
    assert (trace.skipped, trace.models_assigned, trace.reordered) == ([], 0, False)
    check_fits(trace.jobs, make_traces["CLUSTER"])


@pytest.mark.parametrize(("name", "load"), [("diurnal", 0.9), ("bursty", 1.1)])
def test_a_generated_trace_offers_the_stated_load(name, load):
    statistics = summarise(read_trace(resolve_trace(name)).jobs, make_traces["CLUSTER"])
    assert statistics["jobs"] == 1_000
    assert statistics["offered_load"] == pytest.approx(load, rel=1e-6)  # times are rounded to 0.1 s


def test_the_batch_trace_is_distributed_heavy():
    jobs = read_trace(resolve_trace("distributed_batch")).jobs
    assert not jobs.submit_s.any()
    assert jobs.gpus.min() >= 2
    assert jobs.gpus[jobs.gpus > 8] @ jobs.duration_s[jobs.gpus > 8] > 0.3 * (jobs.gpus @ jobs.duration_s)


@pytest.mark.parametrize("name", GENERATED)
def test_the_readme_states_the_statistics_of_a_generated_trace(name):
    cluster = make_traces["CLUSTER"]
    statistics = summarise(read_trace(resolve_trace(name)).jobs, cluster)
    load = statistics["offered_load"]
    row = [
        f"`{name}`",
        str(make_traces["SEEDS"][name]),
        f"{statistics['span_s'] / 86_400:.2f}",
        f"{statistics['work_gpu_s'] / cluster.gpus / 86_400:.2f}",
        "batch" if load is None else f"{load:.2f}",
        *(f"{statistics['gpus'][key]:.3g}" for key in ("mean", "p50", "max")),
        *(f"{statistics['duration_s'][key]:,.0f}" for key in ("mean", "p50", "p90", "max")),
    ]
    assert f"| {' | '.join(row)} |" in README


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_trace_is_done_within_two_weeks(name):
    records = Simulator(make_traces["CLUSTER"], read_trace(resolve_trace(name)).jobs, named_policy("dally")).run()
    assert records.finish_s.max() < 14 * 86_400
