"""Is a trace read as it stands, refused with a reason where it is wrong, and reshaped as asked?"""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobTable
from ddl_gym.models import CATALOGUE
from ddl_gym.trace import (
    BUNDLED,
    TraceError,
    cap_demand,
    check_fits,
    offered_load,
    read_trace,
    resolve_trace,
    scale_load,
    split,
    summarise,
    window,
    write_trace,
)

CLUSTER = ClusterSpec(racks=2, machines_per_rack=2, gpus_per_machine=4)
PHILLY = Path(__file__).parents[2] / "shared" / "data" / "traces" / "philly_jobs.csv"
MODEL, OTHER_MODEL = CATALOGUE.name[0], CATALOGUE.name[1]
HEADER = "job_id,submit_s,gpus,duration_s,model,user\n"
FIRST, SECOND = f"a,0,1,10,{MODEL},ann\n", f"b,5,2,20.5,{OTHER_MODEL},bob\n"

# Any text a CSV cell can carry back; NumPy strings drop NUL at the end.
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@st.composite
def job_tables(draw: st.DrawFn) -> JobTable:
    ids = draw(st.lists(names, min_size=1, max_size=12, unique=True))
    count = len(ids)
    positive = st.floats(1e-300, 1e9)

    def column(values, **kwargs):
        return draw(st.lists(values, min_size=count, max_size=count, **kwargs))

    submit_s = np.sort(np.array(column(st.floats(0, 3e9))))
    submit_s[0] = 0
    return JobTable(
        job_id=np.array(ids),
        submit_s=submit_s,
        gpus=np.array(column(st.integers(1, 1_000_000))),
        duration_s=np.array(column(positive)),
        model=np.array(column(st.integers(0, len(CATALOGUE.name) - 1))),
        user=np.array(column(names | st.just(""))),
    )


def table(submit_s, gpus=1, duration_s=100.0) -> JobTable:
    submit_s = np.array(submit_s, float)
    count = len(submit_s)
    return JobTable(
        job_id=np.arange(count).astype(np.str_),
        submit_s=submit_s,
        gpus=np.broadcast_to(np.array(gpus, np.int64), count).copy(),
        duration_s=np.broadcast_to(np.array(duration_s, float), count).copy(),
        model=np.zeros(count, np.int64),
        user=np.full(count, ""),
    )


@pytest.fixture
def csv(tmp_path):
    """Write text or bytes to a file and give its path."""

    def write(content: str | bytes) -> Path:
        path = tmp_path / "trace.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


# Reading and writing


@given(job_tables())
def test_what_is_written_is_read_back_exactly(tmp_path_factory, jobs):
    path = tmp_path_factory.mktemp("trace") / "jobs.csv"
    write_trace(jobs, path)
    back = read_trace(path)
    for name, written, read in zip(JobTable._fields, jobs, back.jobs, strict=True):
        assert np.array_equal(written, read), name
    assert back.rows_read == jobs.jobs
    assert (back.skipped, back.models_assigned, back.ignored_columns) == ([], 0, ())


def test_a_written_file_holds_plain_columns_and_nothing_is_left_beside_it(tmp_path):
    write_trace(table([0, 0.1], gpus=[1, 8], duration_s=[1 / 3, 2]), tmp_path / "jobs.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.csv"]
    assert (tmp_path / "jobs.csv").read_bytes().decode() == (
        f"{HEADER}0,0.0,1,0.3333333333333333,{MODEL},\n1,0.1,8,2.0,{MODEL},\n"
    )


def test_a_failed_write_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text("old")
    unencodable = table([0])._replace(user=np.array(["\ud800"]))
    with pytest.raises(UnicodeEncodeError):
        write_trace(unencodable, path)
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("jobs.csv", "old")]


def test_writing_into_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"jobs.csv: cannot be written \(No such file or directory\)"):
        write_trace(table([0]), tmp_path / "nowhere" / "jobs.csv")


def test_columns_may_come_in_any_order_and_extra_ones_are_named_as_ignored(csv):
    trace = read_trace(csv(f"state,gpus,submit_s,model,duration_s,job_id\nCOMPLETED,2,5,{OTHER_MODEL},20,b\n"))
    assert trace.ignored_columns == ("state",)
    assert (trace.jobs.job_id[0], trace.jobs.gpus[0], trace.jobs.duration_s[0], trace.jobs.model[0]) == ("b", 2, 20, 1)
    assert trace.jobs.user[0] == ""


def test_times_are_shifted_so_that_the_first_submission_is_zero(csv):
    jobs = read_trace(csv(HEADER + f"a,1500000000,1,10,{MODEL},\nb,1500000060.5,1,10,{MODEL},\n")).jobs
    assert jobs.submit_s.tolist() == [0, 60.5]


def test_unsorted_rows_are_sorted_stably_and_the_result_says_so(csv):
    rows = [f"{name},{time},1,10,{MODEL},\n" for name, time in (("c", 9), ("a", 3), ("d", 9), ("b", 3))]
    trace = read_trace(csv(HEADER + "".join(rows)))
    assert trace.reordered
    assert trace.jobs.job_id.tolist() == ["a", "b", "c", "d"]
    assert trace.jobs.submit_s.tolist() == [0, 0, 6, 6]
    assert not read_trace(csv(HEADER + FIRST + SECOND)).reordered


def test_missing_models_are_drawn_from_the_mix_by_seed(csv):
    rows = "".join(f"j{i},{i},8,100\n" for i in range(200))
    path = csv("job_id,submit_s,gpus,duration_s\n" + rows)
    zero, again, one = (read_trace(path, seed=seed) for seed in (0, 0, 1))
    assert zero.models_assigned == 200
    assert np.array_equal(zero.jobs.model, again.jobs.model)
    assert not np.array_equal(zero.jobs.model, one.jobs.model)
    assert zero.jobs.model.min() >= 0


def test_an_empty_model_cell_is_filled_and_a_named_one_is_kept(csv):
    trace = read_trace(csv(HEADER + "a,0,1,10,,\n" + SECOND))
    assert trace.models_assigned == 1
    assert trace.jobs.model[1] == 1


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_endings_blank_lines_and_a_byte_order_mark_do_not_matter(csv, ending):
    text = ending.join(["", HEADER.strip(), "", FIRST.strip(), "   ", SECOND.strip(), "", ""])
    jobs = read_trace(csv(b"\xef\xbb\xbf" + text.lstrip().encode())).jobs
    assert jobs.job_id.tolist() == ["a", "b"]
    assert jobs.user.tolist() == ["ann", "bob"]


def test_ids_are_text_even_when_they_look_like_numbers_or_missing_values(csv):
    rows = "".join(f"{name},0,1,10,{MODEL},NA\n" for name in ("007", "7", "NA", "nan", "1e3"))
    jobs = read_trace(csv(HEADER + rows)).jobs
    assert jobs.job_id.tolist() == ["007", "7", "NA", "nan", "1e3"]
    assert set(jobs.user) == {"NA"}


# Refusals: one wrong row


# row, column, value shown, reason
BAD_ROWS = [
    ("x,abc,1,10,{m},", "submit_s", "'abc'", "is not a finite number"),
    ("x,,1,10,{m},", "submit_s", "''", "is not a finite number"),
    ("x,inf,1,10,{m},", "submit_s", "'inf'", "is not a finite number"),
    ("x,-1,1,10,{m},", "submit_s", "'-1'", "is before the start"),
    ("x,4e9,1,10,{m},", "submit_s", "'4e9'", "is more than 100 years"),
    ("x,0,two,10,{m},", "gpus", "'two'", "is not a finite number"),
    ("x,0,True,10,{m},", "gpus", "'True'", "is not a finite number"),
    ("x,0,nan,10,{m},", "gpus", "'nan'", "is not a finite number"),
    ("x,0,0,10,{m},", "gpus", "'0'", "is less than 1 GPU"),
    ("x,0,-4,10,{m},", "gpus", "'-4'", "is less than 1 GPU"),
    ("x,0,0.5,10,{m},", "gpus", "'0.5'", "is not a whole number"),
    ("x,0,1e30,10,{m},", "gpus", "'1e30'", "is more than 1000000 GPUs"),
    ("x,0,1,0,{m},", "duration_s", "'0'", "is not positive"),
    ("x,0,1,-3,{m},", "duration_s", "'-3'", "is not positive"),
    ("x,0,1,1e999,{m},", "duration_s", "'1e999'", "is not a finite number"),
    ("x,0,1,1e12,{m},", "duration_s", "'1e12'", "is more than 100 years"),
    ("x,0,1,10,no such net,", "model", "'no such net'", "is not a known model"),
    ("a,0,1,10,{m},", "job_id", "'a'", "is the id of an earlier row too"),
    (",0,1,10,{m},", "job_id", "''", "is empty"),
    ("y" * 500 + ",0,1,10,{m},", "job_id", "'y{80}'", "has more than 128 characters"),
    ("x,0,1,10,{m}," + "u" * 500, "user", "'u{80}'", "has more than 128 characters"),
    ("x,0", "gpus", "''", "is not a finite number"),
]


@pytest.mark.parametrize(("row", "column", "value", "reason"), BAD_ROWS)
def test_a_bad_value_is_refused_with_file_row_column_and_value(csv, row, column, value, reason):
    path = csv(HEADER + FIRST + SECOND + row.format(m=MODEL) + "\n")
    with pytest.raises(TraceError, match=f"trace.csv, row 4, column {column}: {value} {reason}"):
        read_trace(path)


@pytest.mark.parametrize(("row", "column", "value", "reason"), BAD_ROWS)
def test_a_bad_row_can_be_skipped_and_is_listed_with_its_reason(csv, row, column, value, reason):
    trace = read_trace(csv(HEADER + FIRST + row.format(m=MODEL) + "\n" + SECOND), skip_invalid=True)
    assert trace.jobs.job_id.tolist() == ["a", "b"]
    assert trace.rows_read == 3
    assert len(trace.skipped) == 1
    assert trace.skipped[0][0] == 3
    assert trace.skipped[0][1].startswith(f"column {column} {reason}")


def test_skipped_rows_are_counted_by_reason(csv):
    bad = "".join(f"z{i},0,1,-1,{MODEL},\n" for i in range(3)) + f"q,0,0.5,1,{MODEL},\n"
    trace = read_trace(csv(HEADER + bad + FIRST), skip_invalid=True)
    assert trace.skipped_by_reason == {"column duration_s is not positive": 3, "column gpus is not a whole number": 1}


def test_an_id_is_a_duplicate_only_of_a_valid_row(csv):
    trace = read_trace(csv(HEADER + f"b,0,1,-1,{MODEL},\n" + FIRST + SECOND), skip_invalid=True)
    assert trace.jobs.job_id.tolist() == ["a", "b"]


def test_rows_in_errors_count_blank_lines(csv):
    with pytest.raises(TraceError, match="row 6, column gpus"):
        read_trace(csv(HEADER + "\n" + FIRST + "  \n\n" + f"x,0,0,10,{MODEL},\n"))


def test_a_trace_without_a_valid_row_is_refused_even_when_skipping(csv):
    with pytest.raises(TraceError, match="none of its 2 rows is valid; row 2: column gpus is less than 1 GPU"):
        read_trace(csv(HEADER + f"x,0,0,1,{MODEL},\ny,0,0,1,{MODEL},\n"), skip_invalid=True)


# Refusals: the whole file


@pytest.mark.parametrize("skip_invalid", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (HEADER, "there is a header but no job"),
        ("job_id,submit_s,gpus\na,0,1\n", r"the header has no column duration_s \(it has job_id, submit_s, gpus\)"),
        ("hello\n", "the header has no column job_id, submit_s, gpus, duration_s"),
        (b"\x7fELF\x02\0\0\0" * 40, "this is a binary file"),
        (b"\x89PNG\r\n\x1a\n\0\0", "this is a binary file"),
        (HEADER.encode() + b"caf\xe9,0,1,10,,\n", "not UTF-8 text"),
        (b"\xff\xfe" + HEADER.encode("utf-16-le"), "this is a binary file"),
        ("x" * 300_000, "row 1: longer than 65536 bytes"),
        (HEADER + FIRST + "1," * 200_000, "not a well-formed CSV .Expected 6 fields in line 3, saw 200001"),
        ("job_id,submit_s,gpus,duration_s,gpus\na,0,1,10,2\n", "row 1: column 'gpus' appears 2 times"),
        (HEADER + f"a,0,1,10,{MODEL},ann,more\n" + SECOND, "row 2: more fields than the 6 of the header"),
        (HEADER + FIRST + "b,0,1,10,,bob,more\n", "not a well-formed CSV .Expected 6 fields in line 3, saw 7"),
        (HEADER + '"a,0,1,10,,\n' + SECOND, "not a well-formed CSV .EOF inside string"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(csv, content, message, skip_invalid):
    path = csv(content)
    with pytest.raises(TraceError, match=f"trace.csv[:,] {message}") as caught:
        read_trace(path, skip_invalid=skip_invalid)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


def test_a_folder_or_a_missing_file_is_refused(tmp_path):
    with pytest.raises(TraceError, match=r"cannot be read \(Is a directory\)"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match=r"cannot be read \(No such file or directory\)"):
        read_trace(tmp_path / "none.csv")


def test_an_unreadable_file_is_refused(csv, monkeypatch):
    path = csv(HEADER + FIRST)
    if os.geteuid() == 0:  # root may read everything, so the refusal has to be played

        def refuse(*args, **kwargs):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", refuse)
    else:
        path.chmod(0)
    with pytest.raises(TraceError, match=r"trace.csv: cannot be read \(Permission denied\)"):
        read_trace(path)


# Philly


PHILLY_TEXT = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,4,11804.0,6214e9
"""


def test_the_philly_job_list_is_recognised_by_its_header(csv):
    trace = read_trace(csv(PHILLY_TEXT))
    assert (trace.format, trace.ignored_columns, trace.reordered) == ("philly", ("gpu_time",), True)
    jobs = trace.jobs
    assert jobs.job_id.tolist() == ["3", "2"]
    assert jobs.submit_s.tolist() == [0, 48 * 60 + 52]
    assert jobs.duration_s.tolist() == [2951, 66]
    assert jobs.gpus.tolist() == [4, 1]
    assert jobs.user.tolist() == ["6214e9", "11cb48"]


def test_errors_in_a_philly_file_name_its_own_columns(csv):
    with pytest.raises(TraceError, match=r"row 4, column timestamp: '9 Oct' is not .* a time in the expected form"):
        read_trace(csv(PHILLY_TEXT + "9 Oct,1.0,1,1.0,a\n"))
    with pytest.raises(TraceError, match="row 4, column num_gpus: '0' is less than 1 GPU"):
        read_trace(csv(PHILLY_TEXT + "2017-10-09 07:01:55,1.0,0,1.0,a\n"))


def test_the_whole_philly_job_list_is_read():
    if not PHILLY.exists():
        pytest.skip(f"{PHILLY.name} is not beside this checkout")
    trace = read_trace(PHILLY)
    assert (trace.rows_read, trace.jobs.jobs, trace.skipped) == (70_775, 70_775, [])
    statistics = summarise(trace.jobs)
    assert statistics["span_s"] == 9_172_994  # 2017-09-07 03:58:57 to 2017-12-22 08:02:11
    assert statistics["users"] == 11
    assert statistics["jobs_by_gpus"]["1"] == 67_090 / 70_775


# Finding


def test_a_bundled_name_and_a_path_are_both_found(csv):
    path = csv(HEADER + FIRST)
    assert resolve_trace(path) == path
    assert resolve_trace(str(path)) == path
    assert resolve_trace("six_jobs") == BUNDLED / "six_jobs.csv"


def test_an_unknown_trace_is_refused_with_the_names_there_are(tmp_path):
    with pytest.raises(TraceError, match=r"no trace 'seven_jobs': no such file, .*six_jobs"):
        resolve_trace("seven_jobs")
    with pytest.raises(TraceError, match="is not a file"):
        resolve_trace(tmp_path)


# Reshaping


def test_a_job_larger_than_the_cluster_is_named():
    check_fits(table([0, 1], gpus=[1, 16]), CLUSTER)
    with pytest.raises(TraceError, match="job 1 asks for 17 GPUs, the cluster has 16"):
        check_fits(table([0, 1, 2], gpus=[16, 17, 99]), CLUSTER)


def test_a_window_is_half_open_and_starts_at_zero():
    jobs = window(table([0, 10, 20, 20, 30]), 10, 30)
    assert jobs.job_id.tolist() == ["1", "2", "3"]
    assert jobs.submit_s.tolist() == [0, 10, 10]


def test_an_empty_window_is_refused():
    with pytest.raises(TraceError, match=r"no job is submitted from 11 s to 20 s; the last submission is at 30.0 s"):
        window(table([0, 10, 20, 30]), 11, 20)


@given(job_tables(), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_split_keeps_every_job_once_and_in_order(jobs, weights):
    fractions = [weight / sum(weights) for weight in weights]
    try:
        parts = split(jobs, fractions)
    except TraceError:
        assert min(fractions) * jobs.jobs < 1
        return
    assert np.concatenate([part.job_id for part in parts]).tolist() == jobs.job_id.tolist()
    assert all(part.submit_s[0] == 0 for part in parts)


def test_the_default_split_is_sixty_twenty_twenty():
    assert [part.jobs for part in split(table(np.arange(100)))] == [60, 20, 20]


@pytest.mark.parametrize("fractions", [(), (0.5, 0.6), (1.2, -0.2), (0.0, 1.0)])
def test_fractions_that_are_no_partition_are_refused(fractions):
    with pytest.raises(ValueError, match="must be positive and sum to 1"):
        split(table([0, 1]), fractions)


def test_scaling_the_load_stretches_submissions_only():
    jobs = table([0, 50, 100], gpus=[1, 2, 5], duration_s=[100, 200, 220])
    assert offered_load(jobs, CLUSTER.gpus) == 1600 / (16 * 100)
    half = scale_load(jobs, CLUSTER, 0.5)
    assert half.submit_s.tolist() == [0, 100, 200]
    assert np.array_equal(half.duration_s, jobs.duration_s)
    assert offered_load(half, CLUSTER.gpus) == 0.5


def test_the_load_of_a_batch_cannot_be_scaled():
    with pytest.raises(TraceError, match="a batch has no load"):
        scale_load(table([0, 0, 0]), CLUSTER, 0.5)
    for load in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="must be positive and finite"):
            scale_load(table([0, 1]), CLUSTER, load)


def test_capping_clips_demands_and_keeps_every_job():
    assert cap_demand(table([0, 1, 2], gpus=[1, 8, 64]), 8).gpus.tolist() == [1, 8, 8]
    with pytest.raises(ValueError, match="gpus is 0"):
        cap_demand(table([0]), 0)


def test_the_summary_of_a_trace_can_be_checked_by_eye():
    jobs = table([0, 1800, 3600, 7200], gpus=[1, 1, 2, 4], duration_s=[100, 300, 200, 400])
    summary = summarise(jobs._replace(user=np.array(["a", "a", "b", ""])), CLUSTER)
    assert (summary["jobs"], summary["users"], summary["span_s"], summary["work_gpu_s"]) == (4, 2, 7200, 2400)
    assert summary["offered_load"] == 2400 / (16 * 7200)
    assert summary["interarrival_mean_s"] == 2400
    assert summary["hourly_variance_to_mean"] == pytest.approx((2 / 9) / (4 / 3))  # counts 2, 1, 1
    assert summary["jobs_by_gpus"] == {"1": 0.5, "2": 0.25, "4": 0.25}
    assert summary["gpu_time_by_gpus"] == pytest.approx({"1": 1 / 6, "2": 1 / 6, "4": 2 / 3})
    assert (summary["duration_s"]["mean"], summary["duration_s"]["p50"], summary["gpus"]["max"]) == (250, 250, 4)
    assert summary["jobs_by_model"] == {MODEL: 4}


def test_a_batch_has_no_load_and_no_arrival_statistics():
    summary = summarise(table([0, 0]), CLUSTER)
    assert [summary[key] for key in ("offered_load", "interarrival_mean_s", "hourly_variance_to_mean")] == [None] * 3
