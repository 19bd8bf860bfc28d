"""Metrics are what their definitions say, on records small enough to check by eye."""

from math import isnan

import numpy as np
import pytest
from strategies import job_table

from ddl_gym.cluster import ClusterSpec
from ddl_gym.jobs import JobRecords
from ddl_gym.metrics import finish_time_fairness, summarise
from ddl_gym.policies import POLICIES
from ddl_gym.simulator import Simulator

CLUSTER = ClusterSpec(racks=1, machines_per_rack=2, gpus_per_machine=2)
NAN = float("nan")


def records(**changes) -> JobRecords:
    """Three jobs on 4 GPUs: one alone, one that waited and ran at RACK, one that never finished."""
    columns = {
        "job_id": np.array(["a", "b", "c"]),
        "user": np.array(["", "", ""]),
        "model": np.zeros(3, np.int64),
        "gpus": np.array([2, 4, 1]),
        "submit_s": np.array([0.0, 10.0, 20.0]),
        "duration_s": np.array([100.0, 50.0, 10.0]),
        "start_s": np.array([0.0, 100.0, NAN]),
        "finish_s": np.array([100.0, 200.0, NAN]),
        "running_s": np.array([100.0, 100.0, 0.0]),
        "restore_s": np.array([0.0, 5.0, 0.0]),
        "communication_s": np.array([10.0, 40.0, 0.0]),
        "lost_s": np.array([0.0, 1.0, 0.0]),
        "tier_s": np.array([[100.0, 0, 0], [0, 100.0, 0], [0, 0, 0]]),
        "preemptions": np.array([0, 2, 0]),
        "moves": np.array([1, 0, 0]),
        "tier": np.array([0, 1, -1]),
    }
    return JobRecords(**columns | changes)


def test_every_metric_is_the_number_worked_out_by_hand():
    summary = summarise(records(), CLUSTER)
    held = 2 * 100 + 4 * 100
    assert (summary.jobs, summary.unfinished) == (3, 1)
    assert summary.makespan_s == 200.0
    assert (summary.mean_jct_s, summary.median_jct_s) == (145.0, 145.0)
    assert summary.p99_jct_s == pytest.approx(100 + 0.99 * 90)
    assert summary.mean_queueing_s == 45.0
    assert summary.mean_waiting_s == 45.0
    assert summary.communication_s == 2 * 10 + 4 * 40
    assert summary.communication_share == pytest.approx(180 / held)
    assert summary.utilization == pytest.approx(held / (4 * 200))
    assert summary.useful_share == pytest.approx((held - 4 * 5 - 4 * 1) / (4 * 200))
    assert (summary.preemptions, summary.moves, summary.restore_s, summary.lost_s) == (2, 1, 20.0, 4.0)
    assert (summary.machine_jobs_share, summary.rack_jobs_share, summary.network_jobs_share) == (0.5, 0.5, 0.0)
    assert summary.machine_time_share == pytest.approx(200 / held)
    assert summary.mean_slowdown == pytest.approx((1.0 + 190 / 50) / 2)


def test_fairness_compares_with_the_average_share_of_the_cluster():
    """Job a meets 1 job for 10 s, 2 for 10 s and 3 for 80 s: 2.7 on average; c counts to the end."""
    rho = finish_time_fairness(records(), CLUSTER)
    assert rho[0] == pytest.approx(100 / (100 / min(1.0, 4 / 2.7 / 2)))
    assert isnan(rho[2])


def test_a_job_alone_is_served_fairly():
    jobs = job_table([0.0], [2], [100.0])
    run = Simulator(CLUSTER, jobs, POLICIES["fifo"]).run()
    assert finish_time_fairness(run, CLUSTER).tolist() == pytest.approx([1.0])


def test_what_is_undefined_is_none_in_json():
    nothing = records(
        start_s=np.full(3, NAN),
        finish_s=np.full(3, NAN),
        running_s=np.zeros(3),
        tier_s=np.zeros((3, 3)),
        tier=np.full(3, -1),
    )
    found = summarise(nothing, CLUSTER).to_dict()
    assert found["unfinished"] == 3
    assert found["mean_jct_s"] is None
    assert found["makespan_s"] is None
    assert found["utilization"] is None
    assert found["preemptions"] == 2


def test_utilization_and_shares_are_shares():
    jobs = job_table([0.0, 0.0, 5.0], [3, 2, 1], [10.0, 20.0, 30.0])
    summary = summarise(Simulator(CLUSTER, jobs, POLICIES["las"]).run(), CLUSTER)
    assert 0 < summary.useful_share <= summary.utilization <= 1
    assert summary.machine_time_share + summary.rack_time_share + summary.network_time_share == pytest.approx(1)
