"""The command answers with tables and files, and mistakes with one sentence and exit code 2."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from ddl_gym import cli

SIX = ["--cluster", "2x2x4"]
HEADER = "job_id,submit_s,gpus,duration_s\n"


@pytest.fixture
def ddl_gym(capsys, monkeypatch):
    """Run the command in this process; returns exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ddl-gym", *arguments])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_simulate_prints_the_hand_worked_makespan_of_six_jobs(ddl_gym):
    code, out, _ = ddl_gym("simulate", "six_jobs", *SIX, "--policy", "fifo", "--json")
    assert code == 0
    (summary,) = json.loads(out)
    assert summary["policy"] == "fifo"
    assert summary["unfinished"] == 0


def test_compare_prints_a_row_a_policy(ddl_gym):
    code, out, _ = ddl_gym("compare", "six_jobs", *SIX, "--policies", "no_wait,dally")
    assert code == 0
    assert all(name in out for name in ("no_wait", "dally", "makespan", "mean JCT"))
    assert "tiresias" not in out


def test_out_holds_summary_jobs_and_plots(ddl_gym, tmp_path):
    out = tmp_path / "deep" / "results"
    code, *_ = ddl_gym(
        "compare", "six_jobs", *SIX, "--policies", "fifo,dally", "--network", "congested", "--out", str(out)
    )
    assert code == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"summary.json", "jobs.csv", "jct_cdf.png", "gantt_fifo.png", "gantt_dally.png"}
    written = json.loads((out / "summary.json").read_text())
    assert [row["policy"] for row in written["policies"]] == ["fifo", "dally"]
    keys = "makespan_s mean_jct_s p99_jct_s mean_queueing_s communication_share utilization preemptions unfinished"
    assert set(keys.split()) <= written["policies"][0].keys()
    assert written["run"]["command"][1] == "compare"
    assert len(written["run"]["trace_sha256"]) == 64
    assert written["run"]["network_congestion"] == 20.0
    jobs = pd.read_csv(out / "jobs.csv")
    assert len(jobs) == 12
    assert set(jobs.policy) == {"fifo", "dally"}
    assert [path for path in out.parent.iterdir() if path != out] == []


def test_timers_can_be_overridden(ddl_gym):
    def makespan(*timers: str) -> float:
        arguments = ("simulate", "six_jobs", *SIX, "--policy", "static_timers", "--network", "jammed", "--json")
        return json.loads(ddl_gym(*arguments, *timers)[1])[0]["makespan_s"]

    assert makespan("--machine-timer", "0", "--rack-timer", "0") != makespan(
        "--machine-timer", "inf", "--rack-timer", "inf"
    )


def test_describe_prints_the_load_on_a_cluster(ddl_gym):
    code, out, _ = ddl_gym("describe", "diurnal", "--cluster", "512")
    assert code == 0
    assert json.loads(out)["offered_load"] == pytest.approx(0.9, abs=1e-3)


def test_policies_lists_them_all(ddl_gym):
    assert "fully_consolidated" in ddl_gym("policies")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["simulate", "nowhere.csv"], "no such file"),
        (["simulate", "six_jobs", "--policy", "dolly"], "unknown policy 'dolly'; known: fifo"),
        (["compare", "six_jobs", "--policies", "fifo,fifo"], "twice"),
        (["simulate", "six_jobs", "--cluster", "7"], "unknown cluster '7'"),
        (["simulate", "six_jobs", "--cluster", "1x1x4"], "asks for 7 GPUs, the cluster has 4"),
        (["simulate", "six_jobs", "--network", "slow"], "unknown network 'slow'"),
        (["simulate", "six_jobs", "--network-congestion", "0.5"], "network congestion is 0.5"),
        (["simulate", "six_jobs", "--machine-timer", "-1"], "--machine-timer is -1"),
        (["simulate", "six_jobs", "--machine-timer", "9", "--rack-timer", "1"], "rack_timer_s is 1.0"),
        (["simulate", "six_jobs", "--load", "0"], "load is 0"),
        (["simulate", "six_jobs", "--restore-s", "nan"], "--restore-s is nan"),
        (["simulate", "six_jobs", "--machine-timer", "soon"], "Invalid value for '--machine-timer'"),
        (["simulate", "six_jobs", "--polcy", "fifo"], "No such option: --polcy"),
        (["simulate", "distributed_batch", "--load", "1"], "a batch has no load"),
        (["describe", "six_jobs", "--cluster", "1x1x1"], "the cluster has 1"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(ddl_gym, arguments, said, tmp_path):
    out = tmp_path / "out"
    if arguments[0] != "describe":
        arguments = [*arguments, "--out", str(out)]
    code, printed, error = ddl_gym(*arguments)
    assert code == 2
    assert printed == ""
    assert error.count("\n") == 1
    assert said in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty"),
        (HEADER, "no job"),
        ("job_id,submit_s,gpus\na,0,1\n", "no column duration_s"),
        (HEADER + "a,0,1,5\nb,0,two,5\n", "row 3, column gpus: 'two'"),
        (HEADER + "a,0,1,-5\n", "row 2, column duration_s"),
        (HEADER + "a,0,1.5,5\n", "row 2, column gpus"),
        (HEADER + "a,nan,1,5\n", "row 2, column submit_s"),
        (HEADER + "a,0,1,5\na,0,1,5\n", "row 3, column job_id"),
    ],
)
def test_a_bad_trace_is_named_with_file_row_and_column(ddl_gym, content, said, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    code, _, error = ddl_gym("simulate", str(path))
    assert code == 2
    assert error.count("\n") == 1
    assert "bad.csv" in error
    assert said in error


def test_rows_that_can_be_skipped_are_counted_and_listed(ddl_gym, tmp_path):
    path = tmp_path / "some.csv"
    path.write_text(HEADER + "a,0,1,5\nb,0,0,5\nc,0,1,5\n")
    code, out, error = ddl_gym("simulate", str(path), "--skip-invalid", "--json", "--policy", "fifo")
    assert code == 0
    assert json.loads(out)[0]["jobs"] == 2
    assert "skipped 1 rows" in error
    assert "row 3" in error


def test_a_file_for_out_is_refused_before_anything_runs(ddl_gym, tmp_path):
    path = tmp_path / "file"
    path.write_text("kept")
    code, _, error = ddl_gym("simulate", "six_jobs", *SIX, "--out", str(path))
    assert (code, path.read_text()) == (2, "kept")
    assert "is a file" in error


def test_an_interruption_is_one_line_and_exit_code_130(ddl_gym, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupt)
    code, _, error = ddl_gym("simulate", "six_jobs", *SIX)
    assert (code, error) == (130, "ddl-gym: interrupted\n")


def test_the_installed_command_runs_without_gymnasium_torch_or_matplotlib():
    code = (
        "import sys; from ddl_gym import cli; sys.argv = ['ddl-gym', 'simulate', 'six_jobs', '--cluster', '2x2x4', '--policy', 'fifo'];"
        "cli.main(); print(sorted({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--restore-s", "1e300"], "restore_s is 1e+300"),
        (["--load", "1e-12"], "more than 100 years"),
        (["--out", "{file}/inside"], "cannot be written"),
        (["--out", "{directory}"], "is a directory"),
    ],
)
def test_what_cannot_end_well_is_refused(ddl_gym, arguments, said, tmp_path):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "directory" / "summary.json").mkdir(parents=True)
    places = {"file": tmp_path / "file", "directory": tmp_path / "directory"}
    code, _, error = ddl_gym("simulate", "six_jobs", *SIX, *(argument.format(**places) for argument in arguments))
    assert code == 2
    assert said in error
    assert error.count("\n") == 1
    assert [path.name for path in (tmp_path / "directory").iterdir()] == ["summary.json"]
