"""Does a cluster have the shape that was asked for, and is one refused that cannot be?"""

from dataclasses import FrozenInstanceError, replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import clusters

from ddl_gym.cluster import PRESETS, ClusterSpec, Tier, parse_cluster

SMALL = ClusterSpec(racks=2, machines_per_rack=3, gpus_per_machine=4)
SPEEDS = ("machine_gb_s", "nic_gb_s")
LATENCIES = ("machine_alpha_s", "rack_alpha_s", "network_alpha_s")


def test_tiers_are_ordered_from_narrow_to_wide():
    assert Tier.MACHINE < Tier.RACK < Tier.NETWORK
    assert [int(tier) for tier in Tier] == [0, 1, 2]


def test_sizes_follow_from_the_shape():
    assert (SMALL.machines, SMALL.gpus_per_rack, SMALL.gpus) == (6, 12, 24)


@pytest.mark.parametrize(
    ("gpus", "tier"),
    [(1, Tier.MACHINE), (4, Tier.MACHINE), (5, Tier.RACK), (12, Tier.RACK), (13, Tier.NETWORK), (24, Tier.NETWORK)],
)
def test_the_best_tier_is_the_narrowest_that_holds_the_demand(gpus, tier):
    assert SMALL.best_tier(gpus) == tier


@given(clusters, st.data())
def test_the_best_tier_of_many_demands_is_that_of_each_and_never_improves_with_demand(cluster, data):
    demands = np.array(sorted(data.draw(st.lists(st.integers(1, cluster.gpus), min_size=1))))
    tiers = cluster.best_tier(demands)
    assert tiers.dtype == np.int64
    assert tiers.tolist() == [int(cluster.best_tier(int(gpus))) for gpus in demands]
    assert np.all(np.diff(tiers) >= 0)


def test_presets_have_the_gpus_of_their_name():
    shapes = {name: (spec.racks, spec.machines_per_rack, spec.gpus_per_machine) for name, spec in PRESETS.items()}
    assert shapes == {
        "64": (2, 4, 8),
        "128": (4, 4, 8),
        "512": (8, 8, 8),
        "2048": (32, 8, 8),
        "2496": (39, 8, 8),
        "8192": (128, 8, 8),
    }
    assert all(spec.gpus == int(name) for name, spec in PRESETS.items())


def test_a_preset_and_its_shape_parse_to_the_same_cluster():
    assert parse_cluster("512") == parse_cluster(" 8X8x8 ") == parse_cluster("8x8x8@V100") == PRESETS["512"]


@given(clusters, st.sampled_from(("v100", "a100", "h100")))
def test_what_a_cluster_prints_parses_back_to_it(cluster, gpu):
    spec = replace(cluster, gpu=gpu, machine_gb_s=None, nic_gb_s=None)
    assert parse_cluster(str(spec)) == spec


def test_the_generation_selects_the_links_of_a_preset_too():
    v100, a100, h100 = (parse_cluster(f"512@{gpu}") for gpu in ("v100", "a100", "h100"))
    assert v100.machine_gb_s < a100.machine_gb_s < h100.machine_gb_s
    assert v100.nic_gb_s < a100.nic_gb_s < h100.nic_gb_s
    assert a100 == parse_cluster("8x8x8@a100")


def test_links_that_are_given_are_kept():
    spec = ClusterSpec(racks=1, machines_per_rack=1, gpus_per_machine=8, gpu="h100", nic_gb_s=12.5, machine_gb_s=inf)
    assert (spec.machine_gb_s, spec.nic_gb_s) == (inf, 12.5)


@pytest.mark.parametrize("text", ["", "sixty-four", "8x8", "8x8x8x8", "8x-8x8", "8x8.0x8", "1024", "²x8x8"])
def test_an_unknown_cluster_is_refused_with_the_known_names(text):
    with pytest.raises(ValueError, match="unknown cluster") as error:
        parse_cluster(text)
    assert all(name in str(error.value) for name in PRESETS)


@pytest.mark.parametrize("text", ["512@tpu", "512@", "8x8x8@v100@a100"])
def test_an_unknown_generation_is_refused_with_the_known_ones(text):
    with pytest.raises(ValueError, match="known: v100, a100, h100"):
        parse_cluster(text)


def test_a_cluster_without_machines_or_beyond_a_million_gpus_is_refused():
    with pytest.raises(ValueError, match="machines_per_rack is 0"):
        parse_cluster("8x0x8")
    with pytest.raises(ValueError, match="has 1000008 GPUs"):
        parse_cluster("125001x1x8")


@pytest.mark.parametrize("field", ["racks", "machines_per_rack", "gpus_per_machine"])
@pytest.mark.parametrize("value", [0, -1, True, 2.0, inf, nan, "2", None])
def test_counts_must_be_whole_numbers_of_at_least_one(field, value):
    with pytest.raises(ValueError, match=f"{field} is .* whole number of at least 1"):
        replace(SMALL, **{field: value})


@pytest.mark.parametrize("value", [0.0, -1.0, nan, -inf, True, "12"])
@pytest.mark.parametrize("field", SPEEDS)
def test_speeds_must_be_positive_numbers(field, value):
    with pytest.raises(ValueError, match=f"{field} is .* positive number"):
        replace(SMALL, **{field: value})


@pytest.mark.parametrize("value", [-1.0, nan, inf, True, "1", None])
@pytest.mark.parametrize("field", LATENCIES)
def test_latencies_must_be_finite_and_not_negative(field, value):
    with pytest.raises(ValueError, match=f"{field} is .* at least 0"):
        replace(SMALL, **{field: value})


@pytest.mark.parametrize("value", [0.5, 0.0, nan, inf, True, "4"])
def test_oversubscription_must_be_finite_and_at_least_one(value):
    with pytest.raises(ValueError, match=r"oversubscription is .* at least 1"):
        replace(SMALL, oversubscription=value)


def test_a_cluster_cannot_be_changed_and_can_be_a_key():
    with pytest.raises(FrozenInstanceError):
        SMALL.racks = 3
    assert {SMALL: "here"}[replace(SMALL)] == "here"
