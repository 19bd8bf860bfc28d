"""Do the profiles say what their sources say, and are mixes drawn as their shares ask?"""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddl_gym.models import CATALOGUE, MIXES, assign_models, model_index

PROFILES = Path(__file__).parents[2] / "shared" / "data" / "dnn_profiles.csv"
ROWS = list(csv.DictReader((Path(__file__).parents[1] / "ddl_gym" / "models.csv").read_text("utf-8").splitlines()))
GPUS = ("v100", "a100", "h100")
OTHER_NAMES = {"dlrm_dense_part": "dlrm_dense", "lstm_lm_wikitext2": "lstm_lm", "ncf_neumf_ml20m": "ncf"}


def source(row: dict[str, str], gpu: str) -> str:
    return row[f"source_{gpu}"]


def test_the_catalogue_holds_every_row_of_the_file_in_order():
    assert CATALOGUE.name == tuple(row["model"] for row in ROWS)
    for field in ("gradient_bytes", "skew", "compute_s_v100", "compute_s_a100", "compute_s_h100"):
        assert getattr(CATALOGUE, field).tolist() == [float(row[field]) for row in ROWS]


def test_models_have_different_names_and_possible_numbers():
    assert len(set(CATALOGUE.name)) == len(CATALOGUE.name)
    assert set(CATALOGUE.domain) == {"cv", "nlp", "rec", "speech"}
    assert np.all(CATALOGUE.gradient_bytes > 0)
    assert np.all(CATALOGUE.gradient_bytes % 4 == 0)
    assert np.all((CATALOGUE.skew > 0) & (CATALOGUE.skew < 1))


def test_a_newer_gpu_is_faster_at_every_model():
    v100, a100, h100 = (CATALOGUE.compute_s(gpu) for gpu in GPUS)
    assert np.all((v100 > a100) & (a100 > h100) & (h100 > 0))


def test_every_time_tells_its_source():
    assert all(source(row, gpu).strip() for row in ROWS for gpu in GPUS)


def test_quality_is_measured_where_the_v100_or_the_a100_time_was():
    measured = [not all(source(row, gpu).startswith("derived") for gpu in ("v100", "a100")) for row in ROWS]
    assert list(CATALOGUE.quality) == ["measured" if is_measured else "estimate" for is_measured in measured]


def test_derived_times_are_what_their_rule_gives():
    checked = 0
    for row in ROWS:
        seconds = {gpu: float(row[f"compute_s_{gpu}"]) for gpu in GPUS}
        for gpu in GPUS:
            quotient = re.match(r"derived: (\w+) time / ([\d.]+)", source(row, gpu))
            product = re.match(r"derived: ([\d.]+) x (\w+) time", source(row, gpu))
            if quotient:
                expected, rounding_s = seconds[quotient[1].lower()] / float(quotient[2]), 0.5e-4
            elif product:
                expected = seconds[product[2].lower()] * float(product[1])
                rounding_s = 0.5e-4 * float(product[1])  # of the factor, which is rounded in the file too
            else:
                continue
            checked += 1
            assert abs(seconds[gpu] - expected) <= rounding_s + 1e-12  # the file has four decimals
    assert checked >= len(ROWS)


def test_the_ratios_of_derived_times_are_those_of_the_models_measured_on_both():
    ratio = CATALOGUE.compute_s_v100 / CATALOGUE.compute_s_a100
    assert ratio[model_index("resnet50")] == pytest.approx(2.06, abs=0.005)
    assert ratio[model_index("bert_base")] < 2.5 < ratio[model_index("bert_large")]


def test_profiles_agree_with_the_collected_sources_and_no_measured_one_is_missing():
    if not PROFILES.exists():
        pytest.skip(f"{PROFILES} is not there")
    with PROFILES.open(newline="") as file:
        profiles = {OTHER_NAMES.get(row["model"], row["model"]): row for row in csv.DictReader(file)}
    assert {name for name, row in profiles.items() if row["quality"].startswith("measured")} == set(CATALOGUE.name)
    for row in ROWS:
        profile = profiles[row["model"]]
        assert float(row["gradient_bytes"]) == pytest.approx(float(profile["params_M"]) * 4e6)
        assert row["skew"] == profile["largest_tensor_share(Tiresias_skew)"]
        assert row["batch_per_gpu"] == profile["batch_per_gpu"]
        assert row["compute_s_v100"] == profile["v100_iter_s_suggested"]
        if not source(row, "a100").startswith("derived"):
            assert row["compute_s_a100"] in (profile["a100_iter_s_amp"], profile["a100_iter_s_tf32"])


def test_a_model_is_found_by_its_name():
    assert [model_index(name) for name in CATALOGUE.name] == list(range(len(CATALOGUE.name)))


def test_an_unknown_model_is_refused_with_near_names():
    with pytest.raises(ValueError, match="unknown model 'resnet_50'; known: resnet50") as error:
        model_index("resnet_50")
    assert "bert" not in str(error.value)


def test_an_unknown_model_like_no_other_is_refused_with_all_names():
    with pytest.raises(ValueError, match="unknown model") as error:
        model_index("!")
    assert all(name in str(error.value) for name in CATALOGUE.name)


@pytest.mark.parametrize("mix", MIXES)
def test_mixes_name_known_models_with_positive_shares(mix):
    assert all(model_index(name) >= 0 and share > 0 for name, share in MIXES[mix].items())


def test_mixes_of_one_domain_stay_in_it():
    for mix, domain in (("vision", "cv"), ("language", "nlp")):
        assert {CATALOGUE.domain[model_index(name)] for name in MIXES[mix]} == {domain}


@given(st.integers(0, 200), st.sampled_from(tuple(MIXES)), st.integers(0, 2**63 - 1))
def test_the_same_seed_draws_the_same_models_of_the_mix(jobs, mix, seed):
    gpus = np.ones(jobs, np.int64)
    drawn = assign_models(gpus, mix, seed)
    assert drawn.dtype == np.int64
    assert drawn.shape == (jobs,)
    assert np.array_equal(drawn, assign_models(gpus, mix, seed))
    assert set(drawn.tolist()) <= {model_index(name) for name in MIXES[mix]}


def test_different_seeds_draw_different_models():
    gpus = np.ones(100, np.int64)
    assert not np.array_equal(assign_models(gpus, "uniform", 0), assign_models(gpus, "uniform", 1))


@pytest.mark.parametrize("mix", MIXES)
def test_models_come_as_often_as_their_shares_ask(mix):
    jobs = 20_000
    counts = np.bincount(assign_models(np.ones(jobs, np.int64), mix, 0), minlength=len(CATALOGUE.name))
    total = sum(MIXES[mix].values())
    for name, share in MIXES[mix].items():
        p = share / total
        assert abs(counts[model_index(name)] - jobs * p) < 5 * np.sqrt(jobs * p * (1 - p))


def test_an_unknown_mix_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown model mix 'audio'; known: default, vision, language, uniform"):
        assign_models(np.ones(1, np.int64), "audio", 0)
