"""The scripts do what they say, on small settings."""

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


def load(name: str):
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_ppo_in_a_single_file_trains_and_writes_its_curve(tmp_path, capsys):
    pytest.importorskip("torch", reason="needs the extra 'train'")
    script = load("ppo_single_file")
    out = tmp_path / "deep" / "curve.csv"
    settings = {"jobs": 24, "num_envs": 4, "rollout_steps": 16, "total_steps": 200, "out": str(out)}
    curve = script.main(script.Arguments(**settings))
    assert [row["steps"] for row in curve] == [64, 128, 192, 256]
    assert len(list(csv.DictReader(out.read_text().splitlines()))) == 4
    assert "improvement_over_auto_tuner" in capsys.readouterr().out


def test_the_rllib_creator_makes_the_environment():
    script = load("rllib_example")
    env = script.create({"id": "ddl_gym/JobOffer-v0", "cluster": "2x2x8", "jobs": 8})
    assert env.spec.id == "ddl_gym/JobOffer-v0"
    assert env.unwrapped.settings.jobs == 8


def test_rllib_is_asked_for_in_one_sentence_where_it_is_missing():
    if importlib.util.find_spec("ray") is not None:
        pytest.skip("RLlib is installed")
    done = subprocess.run([sys.executable, SCRIPTS / "rllib_example.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install" in done.stderr


def test_the_zoo_file_names_registered_environments():
    import ddl_gym

    ids = [line.split(":")[0] for line in (SCRIPTS / "rl_zoo3_ppo.yml").read_text().splitlines() if line[:1] == "d"]
    assert ids == ["ddl_gym/DelayTimers-v0", "ddl_gym/ClassTimers-v0"]
    assert set(ids) <= set(ddl_gym.ENV_IDS)


def test_a_case_of_the_speed_script_is_measured():
    row = load("speed").measure({"jobs": 50, "cluster": "64", "preset": "philly_batch"}, 2, "dally")
    assert row["jobs"] == 50
    assert len(row["seconds"]) == 2
    assert json.loads(json.dumps(row)) == row
