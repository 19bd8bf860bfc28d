"""Do synthetic workloads follow the distributions and arrivals that they name?"""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddl_gym.trace import offered_load, summarise
from ddl_gym.workload import ARRIVALS, DEMANDS, DURATIONS, PRESETS, Workload, demand_distribution, sample_durations

# Mean run times that the same repositories state, s: HeliosArtifact helios_cluster_summary.csv, AcmeTrace
# data/cluster_summary.csv.
PUBLISHED_MEAN_S = {
    "philly": 18_006,
    "helios": 6_652,
    "venus": 13_041,
    "earth": 5_131,
    "saturn": 5_253,
    "uranus": 9_164,
    "pai": 4_787,
}


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("name", DURATIONS)
def test_sampled_durations_have_the_published_quantiles(name):
    published = np.array(DURATIONS[name])
    quantiles = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99][-len(published) :])
    durations = sample_durations(name, 400_000, rng())
    shares = [(durations <= point).mean() for point in published]
    # Five standard errors of a share among 400,000 draws.
    assert np.all(np.abs(shares - quantiles) < 5 * np.sqrt(quantiles * (1 - quantiles) / 400_000))


@pytest.mark.parametrize("name", PUBLISHED_MEAN_S)
def test_mean_duration_under_the_default_limit_is_near_the_published_mean(name):
    durations = np.minimum(sample_durations(name, 400_000, rng()), Workload().max_duration_s)
    assert durations.mean() == pytest.approx(
        PUBLISHED_MEAN_S[name], rel=0.16
    )  # 15 % as documented, 1 % of sampling noise


@pytest.mark.parametrize("name", DEMANDS)
def test_a_demand_preset_is_a_distribution_over_ascending_demands(name):
    demands, jobs, gpu_time = demand_distribution(name)
    assert np.all(np.diff(demands) > 0)
    assert np.all(jobs >= 0)
    assert jobs.sum() == pytest.approx(1)
    assert gpu_time.sum() == pytest.approx(1)


def test_helios_demand_is_the_published_cdf():
    demands, jobs, _ = demand_distribution("helios")
    assert demands.tolist() == [1, 2, 4, 8, 16, 32, 64, 128, 512]
    assert 100 * jobs == pytest.approx([72.2, 2.5, 5.8, 14.2, 3.0, 1.7, 0.3, 0.2, 0.1])


def test_sampled_demands_have_the_published_shares():
    jobs = Workload(jobs=200_000, arrivals="batch", demand="venus").generate(1_024, 0)
    assert (jobs.gpus == 1).mean() == pytest.approx(0.518, abs=0.006)
    assert (jobs.gpus == 8).mean() == pytest.approx(0.252, abs=0.005)
    assert jobs.gpus.max() == 128


def test_full_dependence_shares_gpu_time_among_demands_as_published():
    workload = Workload(
        jobs=1_000_000, arrivals="batch", duration="pai", demand="philly", demand_dependence=1.0, max_duration_s=1e9
    )
    jobs = workload.generate(512, 3)
    shares = summarise(jobs)["gpu_time_by_gpus"]
    published = {"1": 0.164, "2": 0.03, "4": 0.188, "8": 0.498, "16": 0.092, "32": 0.028}
    assert shares == pytest.approx(published, abs=0.02)
    independent = replace(workload, demand_dependence=0.0).generate(512, 3)
    assert summarise(independent)["gpu_time_by_gpus"]["1"] > 0.35
    assert jobs.duration_s.mean() == pytest.approx(independent.duration_s.mean(), rel=0.03)


@given(
    st.sampled_from(ARRIVALS[1:]),
    st.integers(2, 400),
    st.floats(0.05, 5.0),
    st.sampled_from(sorted(DURATIONS)),
    st.sampled_from(DEMANDS),
    st.integers(0, 2**32),
)
def test_the_offered_load_is_exactly_what_was_asked(arrivals, count, load, duration, demand, seed):
    workload = Workload(jobs=count, arrivals=arrivals, load=load, duration=duration, demand=demand)
    jobs = workload.generate(512, seed)
    assert offered_load(jobs, 512) == pytest.approx(load, rel=1e-9)
    assert jobs.submit_s[0] == 0
    assert np.all(np.diff(jobs.submit_s) >= 0)
    assert jobs.gpus.min() >= 1
    assert jobs.gpus.max() <= 512
    assert jobs.duration_s.min() >= 1
    assert jobs.duration_s.max() <= workload.max_duration_s
    assert len(set(jobs.job_id)) == count


@pytest.mark.parametrize("name", PRESETS)
def test_the_same_seed_gives_the_same_jobs_and_another_seed_others(name):
    first, again, other = (PRESETS[name].generate(512, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.duration_s, other.duration_s)
    assert not np.array_equal(first.gpus, other.gpus)


def test_arrivals_and_load_leave_the_jobs_themselves_unchanged():
    a = Workload(arrivals="poisson", load=0.5).generate(512, 4)
    b = Workload(arrivals="bursty", load=1.5).generate(512, 4)
    assert np.array_equal(a.gpus, b.gpus)
    assert np.array_equal(a.duration_s, b.duration_s)
    assert np.array_equal(a.model, b.model)


def test_a_batch_is_submitted_at_zero():
    assert not Workload(arrivals="batch").generate(512, 0).submit_s.any()


def at_rate(workload: Workload, jobs_per_hour: float, seed: int) -> Workload:
    """The same workload with the load at which that many jobs are submitted an hour."""
    span_s = workload.generate(1_022, seed).submit_s[-1]
    return replace(workload, load=workload.load * jobs_per_hour / ((workload.jobs - 1) * 3600 / span_s))


def test_hourly_counts_scatter_like_poisson_or_like_venus():
    base = Workload(jobs=60_000, duration="venus", demand="venus", arrivals="poisson")
    dispersion = {}
    for arrivals in ARRIVALS[1:]:
        workload = at_rate(replace(base, arrivals=arrivals), 28.8, 5)
        dispersion[arrivals] = summarise(workload.generate(1_022, 5))["hourly_variance_to_mean"]
    assert dispersion["poisson"] == pytest.approx(1, abs=0.15)
    assert dispersion["poisson"] < dispersion["diurnal"] < dispersion["bursty"]
    # Published for Venus: variance / mean 39.3 at 28.8 submissions an hour.
    assert dispersion["bursty"] == pytest.approx(39.3, rel=0.15)


def test_diurnal_submissions_follow_the_hours_and_the_weekdays_of_venus():
    jobs = at_rate(Workload(jobs=200_000, arrivals="diurnal"), 1_000, 0).generate(1_022, 0)
    hour = (jobs.submit_s // 3600).astype(int)
    week = hour < 168  # the span is 200 hours
    by_hour = np.bincount(hour[week] % 24, minlength=24)
    by_day = np.bincount(hour[week] // 24)
    assert by_hour.argmin() == 6
    assert by_hour.max() / by_hour.mean() == pytest.approx(1.73, rel=0.05)
    assert by_hour.min() / by_hour.mean() == pytest.approx(0.19, rel=0.1)
    assert by_day.argmax() == 2
    assert by_day[5] / by_day[2] == pytest.approx(0.68 / 1.27, rel=0.05)


def test_demand_bounds_leave_jobs_out_and_keep_the_proportions_of_the_rest():
    jobs = Workload(jobs=100_000, arrivals="batch", demand="muri_t3", min_gpus=8, max_gpus=16).generate(512, 0)
    assert sorted(set(jobs.gpus.tolist())) == [8, 16]
    assert (jobs.gpus == 16).mean() == pytest.approx(0.003 / 0.703, abs=0.002)
    assert Workload(demand="muri_t3").generate(16, 0).gpus.max() <= 16


def test_a_workload_survives_json():
    for workload in PRESETS.values():
        assert Workload(**json.loads(json.dumps(asdict(workload)))) == workload


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"arrivals": "weekly"}, "unknown arrivals 'weekly'; known: batch, poisson"),
        ({"duration": "summit"}, "unknown duration 'summit'"),
        ({"demand": "summit"}, "unknown demand 'summit'"),
        ({"jobs": 0, "arrivals": "batch"}, "jobs is 0"),
        ({"jobs": 1}, "poisson arrivals need 2"),
        ({"load": 0.0}, "load is 0.0"),
        ({"load": float("nan")}, "load is nan"),
        ({"max_duration_s": float("inf")}, "max_duration_s is inf"),
        ({"max_duration_s": 0.5}, "no job is shorter than 1 s"),
        ({"min_gpus": 0}, "min_gpus 0"),
        ({"min_gpus": 8, "max_gpus": 4}, "min_gpus 8 and max_gpus 4"),
        ({"demand_dependence": 1.5}, r"demand_dependence is 1.5"),
        ({"demand": "gavel", "demand_dependence": 1.0}, "no published GPU time"),
    ],
)
def test_a_meaningless_workload_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Workload(**fields)


def test_a_cluster_too_small_for_every_demand_is_refused():
    with pytest.raises(ValueError, match=r"no job of 16 to 8 GPUs \(the cluster has 8\)"):
        Workload(min_gpus=16).generate(8, 0)


def test_a_load_so_low_that_it_spans_centuries_is_refused():
    with pytest.raises(ValueError, match="more than 100 years"):
        Workload(load=1e-9).generate(512, 0)
