"""Pictures and texts of a cluster show who holds which GPUs, on runs small enough to derive by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import job_table, scenarios

from ddl_gym.cluster import ClusterSpec
from ddl_gym.policies import POLICIES
from ddl_gym.render import COLOURS, gpu_states, queue_by_class, render_ansi, render_rgb
from ddl_gym.simulator import Simulator

# A job of 1 GPU lies on machine 0, one of 3 takes the rest of rack 0 (RACK), one of 4 takes rack 1 (RACK), one of 2 waits.
CLUSTER = ClusterSpec(racks=2, machines_per_rack=2, gpus_per_machine=2)
JOBS = job_table([0.0, 0.0, 0.0, 0.0], [1, 3, 4, 2], [1e6, 1e6, 1e6, 1e6])


@pytest.fixture
def world():
    simulator = Simulator(CLUSTER, JOBS, POLICIES["no_wait"])
    simulator.advance(3_600.0)
    return simulator.world


def test_each_gpu_is_in_the_state_of_the_job_that_holds_it(world):
    counts = np.bincount(gpu_states(world).ravel(), minlength=4)
    held = np.zeros(4, int)
    for job in world.jobs[world.jobs["status"] == 2]:
        held[1 + job.tier] += job.gpus
    assert counts[1:].tolist() == held[1:].tolist()
    assert counts.tolist() == [0, 1, 7, 0]


def test_the_text_has_a_line_a_rack_and_the_queue(world):
    lines = render_ansi(world).splitlines()
    drawn = "".join(line[10:] for line in lines if line.startswith("rack"))
    states = gpu_states(world)
    assert lines[0].startswith("1.00 h")
    assert [drawn.count(symbol) for symbol in ".123"] == np.bincount(states.ravel(), minlength=4).tolist()
    jobs, gpus = queue_by_class(world)
    assert jobs.sum() == world.clock[0].queued
    assert gpus.sum() == world.jobs["gpus"][world.jobs["status"] == 1].sum()


def test_the_picture_shows_held_tiers_and_no_others(world):
    picture = render_rgb(world)
    assert (picture.shape, picture.dtype) == ((640, 960, 3), np.uint8)
    cluster = picture[64:576, 60:590]  # without legend and plots
    shown = [bool((cluster == colour).all(axis=-1).any()) for colour in COLOURS]
    present = np.bincount(gpu_states(world).ravel(), minlength=4) > 0
    assert shown == present.tolist()


@pytest.mark.parametrize(("racks", "machines"), [(1, 1), (39, 8)])
def test_an_idle_cluster_of_any_size_has_the_same_picture_size(racks, machines):
    cluster = ClusterSpec(racks=racks, machines_per_rack=machines, gpus_per_machine=8)
    world = Simulator(cluster, job_table([0.0], [1], [1.0]), POLICIES["fifo"]).world
    assert render_rgb(world, width=480, height=320).shape == (320, 480, 3)
    assert gpu_states(world).sum() == 0
    assert max(len(line) for line in render_ansi(world).splitlines()) <= 120


@given(scenarios(max_jobs=8), st.floats(0, 1))
def test_any_moment_of_any_run_can_be_drawn_as_text(scenario, share):
    simulator = Simulator(
        scenario.cluster, scenario.jobs, scenario.policy, tables=scenario.tables, restore_s=scenario.restore_s
    )
    simulator.advance(share * scenario.actions[-1].until_s)
    drawn = "".join(line[10:] for line in render_ansi(simulator.world).splitlines() if line.startswith("rack"))
    assert drawn.count(".") == simulator.world.clock[0].free
