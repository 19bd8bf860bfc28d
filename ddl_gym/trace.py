"""How does a trace file become a JobTable, and what does it hold?

A native trace is a UTF-8 CSV with the columns job_id, submit_s, gpus, duration_s and optionally model and user, in any
order; other columns are ignored (`Trace.ignored_columns` names them). Rows in errors are lines of the file, the header
being row 1.
"""

import csv
import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from itertools import pairwise
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobTable
from ddl_gym.models import CATALOGUE, assign_models, model_index

BUNDLED = Path(__file__).parents[1] / "traces"  # exists in a checkout, not in an installed package
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)  # in `summarise`
_REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
_CENTURY_S = 100 * 365.25 * 86_400.0
_MAX_GPUS = 1_000_000
_MAX_NAME = 128  # characters of an id or a user; a fixed-width array pays the longest one in every row
_MAX_HEADER = 65_536  # bytes


class TraceError(ValueError):
    """A trace that cannot be read or does not fit; the message says where."""


class Trace(NamedTuple):
    """What was read, and what was done to it on the way."""

    jobs: JobTable
    source: str  # the file
    format: str  # name of the reader
    rows_read: int  # data rows in the file
    skipped: list[tuple[int, str]]  # (row in the file, reason) of each row left out
    reordered: bool  # rows were not in order of submission and were sorted (stably)
    models_assigned: int  # jobs without a model in the file, given one by the mix
    ignored_columns: tuple[str, ...]

    @property
    def skipped_by_reason(self) -> dict[str, int]:
        """Number of rows left out for each reason, most frequent first."""
        return dict(Counter(reason for _, reason in self.skipped).most_common())


class Reader(NamedTuple):
    """How one kind of CSV is turned into native columns."""

    name: str
    # native column -> the file's column it comes from; errors name the latter
    origin: Mapping[str, str]
    # the file as text, header as column names -> native columns, same rows; NaN where a value cannot be read
    convert: Callable[[pd.DataFrame], pd.DataFrame]


def _read_native(table: pd.DataFrame) -> pd.DataFrame:
    return table[[name for name in (*_REQUIRED, "model", "user") if name in table]]


def _read_philly(table: pd.DataFrame) -> pd.DataFrame:
    """Microsoft's Philly jobs as cleaned and published with ElasticFlow (Apache-2.0): unsorted; row numbers become ids.

    Times are local: the hour that the end of daylight saving repeats (5 November 2017) is read as it stands.
    """
    local = pd.to_datetime(table["timestamp"], format="%Y-%m-%d %H:%M:%S", errors="coerce")
    return pd.DataFrame(
        {
            "job_id": np.arange(2, len(table) + 2).astype(np.str_),
            "submit_s": (local - pd.Timestamp(0)) / pd.Timedelta(seconds=1),
            "gpus": table["num_gpus"],
            "duration_s": table["duration"],
            "user": table["cluster"],
        }
    )


# Recognised by the columns a file has; the first set that the header covers decides.
READERS: dict[frozenset[str], Reader] = {
    frozenset(_REQUIRED): Reader("native", {}, _read_native),
    frozenset({"timestamp", "duration", "num_gpus", "gpu_time", "cluster"}): Reader(
        "philly",
        {"submit_s": "timestamp", "gpus": "num_gpus", "duration_s": "duration", "user": "cluster"},
        _read_philly,
    ),
}


def resolve_trace(name_or_path: str | Path) -> Path:
    """The file of a bundled trace ("six_jobs") or the path itself; TraceError if there is neither."""
    bundled = BUNDLED / f"{name_or_path}.csv"
    for path in (Path(name_or_path), bundled):
        if path.is_file():
            return path
    if Path(name_or_path).exists():
        raise TraceError(f"{name_or_path} is not a file")
    names = ", ".join(sorted(path.stem for path in BUNDLED.glob("*.csv"))) or "none here"
    raise TraceError(f"no trace {str(name_or_path)!r}: no such file, and not one of the bundled traces ({names})")


def read_trace(path: str | Path, *, mix: str = "default", seed: int = 0, skip_invalid: bool = False) -> Trace:
    """Read a native CSV or one that `READERS` recognises; the first submission becomes second 0.

    Jobs without a model get one from `mix`, drawn with `seed`. With `skip_invalid` rows with a bad value are left out
    and listed; what is wrong with the file as a whole still raises. TraceError names file, row, column and value.
    """
    path = Path(path)
    table = _read_text(path)
    reader = next((reader for columns, reader in READERS.items() if columns <= set(table.columns)), None)
    if reader is None:
        missing = ", ".join(name for name in _REQUIRED if name not in table.columns)
        raise TraceError(f"{path}: the header has no column {missing} (it has {', '.join(map(str, table.columns))})")
    if len(table) == 0:
        raise TraceError(f"{path}: there is a header but no job")
    native = reader.convert(table)
    jobs, problems = _validate(native)
    good = np.ones(len(table), np.bool_)
    skipped: list[tuple[int, str]] = []
    if problems:
        rows = _file_rows(path, len(table))
        for row, (column, reason) in sorted(problems.items()):
            origin = reader.origin.get(column, column)
            if not skip_invalid:
                value = str(table[origin].iloc[row])[:80]
                raise TraceError(f"{path}, row {rows[row]}, column {origin}: {value!r} {reason}")
            skipped.append((int(rows[row]), f"column {origin} {reason}"))
            good[row] = False
        if not good.any():
            raise TraceError(f"{path}: none of its {len(table)} rows is valid; row {skipped[0][0]}: {skipped[0][1]}")
    jobs = jobs.take(good)
    without_model = jobs.model < 0
    order = np.argsort(jobs.submit_s, kind="stable")
    reordered = bool(np.any(np.diff(order) < 0))
    jobs = _from_zero(jobs.take(order))
    if without_model.any():
        drawn = assign_models(jobs.gpus, mix, seed)
        jobs = jobs._replace(model=np.where(jobs.model < 0, drawn, jobs.model))
    return Trace(
        jobs=jobs,
        source=str(path),
        format=reader.name,
        rows_read=len(table),
        skipped=skipped,
        reordered=reordered,
        models_assigned=int(without_model.sum()),
        ignored_columns=tuple(
            str(name)
            for name in table.columns
            if name not in {reader.origin.get(str(column), column) for column in native}
        ),
    )


def _read_text(path: Path) -> pd.DataFrame:
    """The file as text cells; TraceError for what is wrong with the file as a whole."""
    try:
        with path.open("rb") as file:
            start = file.read(_MAX_HEADER)
        if not start.strip():
            raise TraceError(f"{path}: the file is empty")
        if b"\0" in start:
            raise TraceError(f"{path}: this is a binary file, not a CSV")
        first = start.lstrip().splitlines()[0]
        if len(first) == _MAX_HEADER:
            raise TraceError(f"{path}, row 1: longer than {_MAX_HEADER} bytes, this is not a CSV with a header")
        header = [name.strip() for name in next(csv.reader(StringIO(first.decode("utf-8-sig"))))]
        twice = [name for name, count in Counter(header).items() if count > 1]
        if twice:
            raise TraceError(f"{path}, row 1: column {twice[0]!r} appears {header.count(twice[0])} times")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path,
                header=0,
                names=header,
                index_col=False,
                dtype=str,
                na_filter=False,
                encoding="utf-8-sig",
                compression=None,
            )
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text ({error.reason} {error.object[error.start]:#x})") from error
    except pd.errors.ParserWarning as error:
        raise TraceError(f"{path}, row 2: more fields than the {len(header)} of the header") from error
    except (pd.errors.ParserError, csv.Error) as error:
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise TraceError(f"{path}: not a well-formed CSV ({reason})") from error


def _file_rows(path: Path, rows: int) -> NDArray[np.int64]:
    """(rows,) line of the file of each data row, blank lines counted; its record if cells hold line breaks."""
    with path.open("rb") as file:
        lines = np.flatnonzero([bool(line.strip()) for line in file]) + 1
    return lines[1:] if len(lines) == rows + 1 else np.arange(2, rows + 2)


def _numbers(column: "pd.Series[Any]") -> NDArray[np.float64]:
    """The cells as Python's float() reads them (exactly), NaN where it cannot."""
    cells = column.to_numpy(object)
    try:
        return cells.astype(np.float64)
    except ValueError:
        return np.array([_number(cell) for cell in cells])


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _validate(native: pd.DataFrame) -> tuple[JobTable, dict[int, tuple[str, str]]]:
    """All rows as a JobTable (nonsense where invalid, model -1 where the file has none) and {row: (column, reason)}."""
    submit_s, gpus, duration_s = (_numbers(native[name]) for name in _REQUIRED[1:])
    blank = pd.Series("", index=native.index)
    users, models = (native.get(name, blank) for name in ("user", "model"))
    model_codes, model_names = pd.factorize(models)
    model = np.array([_model_or_unknown(name) for name in model_names])[model_codes]
    finite = np.isfinite
    checks = [
        ("job_id", (native["job_id"] == "").to_numpy(), "is empty"),
        ("job_id", (native["job_id"].str.len() > _MAX_NAME).to_numpy(), f"has more than {_MAX_NAME} characters"),
        ("submit_s", ~finite(submit_s), "is not a finite number or a time in the expected form"),
        ("submit_s", submit_s < 0, "is before the start of time counting (negative)"),
        ("submit_s", submit_s > _CENTURY_S, "is more than 100 years after the start of time counting"),
        ("gpus", ~finite(gpus), "is not a finite number"),
        ("gpus", np.floor(gpus) != gpus, "is not a whole number"),
        ("gpus", gpus < 1, "is less than 1 GPU"),
        ("gpus", gpus > _MAX_GPUS, f"is more than {_MAX_GPUS} GPUs"),
        ("duration_s", ~finite(duration_s), "is not a finite number"),
        ("duration_s", duration_s <= 0, "is not positive"),
        ("duration_s", duration_s > _CENTURY_S, "is more than 100 years"),
        ("model", model == _UNKNOWN, f"is not a known model ({', '.join(CATALOGUE.name)})"),
        ("user", (users.str.len() > _MAX_NAME).to_numpy(), f"has more than {_MAX_NAME} characters"),
    ]
    problems: dict[int, tuple[str, str]] = {}
    for column, bad, reason in checks:
        for row in np.flatnonzero(bad):
            problems.setdefault(int(row), (column, reason))
    bad_rows = np.isin(np.arange(len(native)), list(problems))
    duplicate = native["job_id"][~bad_rows].duplicated()
    problems.update(
        {int(row): ("job_id", "is the id of an earlier row too") for row in np.flatnonzero(~bad_rows)[duplicate]}
    )
    bad_rows[list(problems)] = True
    jobs = JobTable(
        job_id=_short_text(native["job_id"], bad_rows),
        submit_s=submit_s,
        gpus=np.where(bad_rows, 1, gpus).astype(np.int64),
        duration_s=duration_s,
        model=model,
        user=_short_text(users, bad_rows),
    )
    return jobs, problems


_UNKNOWN = -2


def _model_or_unknown(name: str) -> int:
    if name == "":
        return -1
    try:
        return model_index(name)
    except ValueError:
        return _UNKNOWN


def _short_text(column: "pd.Series[Any]", blank: NDArray[np.bool_]) -> NDArray[np.str_]:
    return np.where(blank, "", column.to_numpy(object)).astype(np.str_)


def write_trace(jobs: JobTable, path: str | Path) -> None:
    """Write a native CSV that `read_trace` gives back unchanged; the file appears whole or not at all."""
    path = Path(path)
    columns = {
        "job_id": jobs.job_id,
        "submit_s": jobs.submit_s,
        "gpus": jobs.gpus,
        "duration_s": jobs.duration_s,
        "model": np.asarray(CATALOGUE.name)[jobs.model],
        "user": jobs.user,
    }
    # The csv module leaves a lone carriage return unquoted (before Python 3.13), and it would end the row.
    returns = any(np.strings.find(column, "\r").max(initial=-1) >= 0 for column in (jobs.job_id, jobs.user))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("x", encoding="utf-8", newline="") as file:
            pd.DataFrame(columns).to_csv(
                file, index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if returns else csv.QUOTE_MINIMAL
            )
        partial.replace(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        partial.unlink(missing_ok=True)


def check_fits(jobs: JobTable, cluster: ClusterSpec) -> None:
    """TraceError names the first job that asks for more GPUs than the cluster has."""
    if jobs.gpus.max(initial=0) > cluster.gpus:
        job = int(np.argmax(jobs.gpus > cluster.gpus))
        raise TraceError(f"job {jobs.job_id[job]} asks for {jobs.gpus[job]} GPUs, the cluster has {cluster.gpus}")


def _from_zero(jobs: JobTable) -> JobTable:
    return jobs._replace(submit_s=jobs.submit_s - jobs.submit_s[0])


def window(jobs: JobTable, from_s: float, to_s: float) -> JobTable:
    """The jobs submitted in [from_s, to_s), the first of them at 0."""
    first, last = np.searchsorted(jobs.submit_s, (from_s, to_s))
    if first >= last:
        raise TraceError(
            f"no job is submitted from {from_s} s to {to_s} s; the last submission is at {jobs.submit_s[-1]} s"
        )
    return _from_zero(jobs.take(slice(first, last)))


def split(jobs: JobTable, fractions: Sequence[float] = (0.6, 0.2, 0.2)) -> tuple[JobTable, ...]:
    """Consecutive parts in order of submission, by share of jobs (train, validation, test), each starting at 0."""
    if min(fractions, default=0) <= 0 or not isclose(sum(fractions), 1.0):
        raise ValueError(f"fractions are {tuple(fractions)}, they must be positive and sum to 1")
    edges = np.rint(np.cumsum([0.0, *fractions]) * jobs.jobs).astype(int)
    if np.any(np.diff(edges) == 0):
        raise TraceError(f"{jobs.jobs} jobs cannot be split by {tuple(fractions)}: a part would be empty")
    return tuple(_from_zero(jobs.take(slice(first, last))) for first, last in pairwise(edges))


def offered_load(jobs: JobTable, gpus: int) -> float:
    """GPU-seconds asked for / those that `gpus` GPUs have from the first to the last submission; inf for a batch."""
    span_s = float(jobs.submit_s[-1] - jobs.submit_s[0])
    work_gpu_s = float(jobs.gpus @ jobs.duration_s)
    return work_gpu_s / (gpus * span_s) if span_s > 0 else float("inf")


def scale_load(jobs: JobTable, cluster: ClusterSpec, load: float) -> JobTable:
    """Stretch or squeeze the submissions so that the offered load becomes `load`; the jobs stay as they are."""
    if not 0 < load < float("inf"):
        raise ValueError(f"load is {load}, it must be positive and finite")
    now = offered_load(jobs, cluster.gpus)
    if now == float("inf"):
        raise TraceError("all jobs are submitted at one instant: a batch has no load to scale")
    span_s = float(jobs.submit_s[-1]) * (now / load)
    if not span_s <= _CENTURY_S:
        raise ValueError(f"load {load:g} would stretch the submissions over {span_s:.3g} s, more than 100 years")
    return jobs._replace(submit_s=jobs.submit_s * (now / load))


def cap_demand(jobs: JobTable, gpus: int) -> JobTable:
    """Clip every demand to `gpus`: no job is lost and arrivals keep their rhythm, but the clipped ones do less work."""
    if gpus < 1:
        raise ValueError(f"gpus is {gpus}, it must be at least 1")
    return jobs._replace(gpus=np.minimum(jobs.gpus, gpus))


def summarise(jobs: JobTable, cluster: ClusterSpec | None = None) -> dict[str, Any]:
    """Statistics of a trace as JSON values; None where there is nothing to measure (the load of a batch)."""
    span_s = float(jobs.submit_s[-1] - jobs.submit_s[0])
    work_gpu_s = jobs.gpus * jobs.duration_s
    hourly = np.bincount((jobs.submit_s // 3600.0).astype(np.int64))
    demands, rows = np.unique(jobs.gpus, return_inverse=True)
    models, counts = np.unique(jobs.model, return_counts=True)

    def by_demand(weights: NDArray[Any]) -> dict[str, float]:
        shares = np.bincount(rows, weights) / weights.sum()
        return {str(demand): float(share) for demand, share in zip(demands, shares, strict=True)}

    def quantiles(values: NDArray[Any]) -> dict[str, float]:
        named = {
            f"p{100 * q:g}": float(value) for q, value in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)
        }
        return {"mean": float(values.mean()), "min": float(values.min()), **named, "max": float(values.max())}

    return {
        "jobs": jobs.jobs,
        "users": len(np.unique(jobs.user[jobs.user != ""])),
        "span_s": span_s,
        "work_gpu_s": float(work_gpu_s.sum()),
        "offered_load": offered_load(jobs, cluster.gpus) if cluster and span_s > 0 else None,
        "interarrival_mean_s": span_s / (jobs.jobs - 1) if span_s > 0 else None,
        "hourly_variance_to_mean": float(hourly.var() / hourly.mean()) if len(hourly) > 1 else None,
        "gpus": quantiles(jobs.gpus),
        "jobs_by_gpus": by_demand(np.ones(jobs.jobs)),
        "gpu_time_by_gpus": by_demand(work_gpu_s),
        "duration_s": quantiles(jobs.duration_s),
        "jobs_by_model": {str(CATALOGUE.name[model]): int(count) for model, count in zip(models, counts, strict=True)},
    }
