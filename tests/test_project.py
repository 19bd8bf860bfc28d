"""Is what is installed, imported and pinned what pyproject.toml and the design promise?"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import ddl_gym

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = sorted(path.relative_to(ROOT) for room in ("ddl_gym", "agents") for path in (ROOT / room).rglob("*.py"))
NEVER_IMPORTED = {"agents", "matplotlib", "sb3_contrib", "stable_baselines3", "torch"}


def run_python(code: str, folder: Path, cwd: Path = ROOT) -> str:
    """What the code prints in a fresh interpreter with the compiler on, as users have it, and its empty cache in the folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment["NUMBA_CACHE_DIR"] = str(folder / "numba")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """The wheel of this tree, built from a copy of it."""
    tree = tmp_path_factory.mktemp("wheel") / "tree"
    shutil.copytree(
        ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "results", "__pycache__")
    )
    run_python("from setuptools import build_meta; build_meta.build_wheel('.')", tree, cwd=tree)
    return zipfile.ZipFile(next(tree.glob("*.whl")))


def test_the_wheel_holds_only_ddl_gym(wheel):
    folders = {name.split("/")[0] for name in wheel.namelist()}
    assert folders == {"ddl_gym", f"ddl_gym-{ddl_gym.__version__}.dist-info"}


def test_the_wheel_holds_every_file_of_ddl_gym(wheel):
    here = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "ddl_gym").rglob("*")
        if path.suffix in {".py", ".csv", ".typed"}
    }
    assert here <= set(wheel.namelist())


def test_the_wheel_installs_the_command(wheel):
    entry_points = wheel.read(f"ddl_gym-{ddl_gym.__version__}.dist-info/entry_points.txt").decode()
    assert "ddl-gym = ddl_gym.cli:main" in entry_points


def test_importing_ddl_gym_imports_no_learner_no_plots_and_no_agents(tmp_path):
    loaded = run_python("import sys, ddl_gym; print(*{name.split('.')[0] for name in sys.modules})", tmp_path).split()
    assert "ddl_gym" in loaded
    assert not NEVER_IMPORTED & set(loaded)


def test_importing_any_module_compiles_nothing_and_imports_no_learner_no_plots_and_no_agents(tmp_path):
    names = [".".join(path.with_suffix("").parts) for path in MODULES if path.parts[0] == "ddl_gym"]
    code = (
        "import importlib, sys\n"
        "from numba.core import event\n"
        "with event.install_recorder('numba:compile') as compilations:\n"
        f"    for name in {[name.removesuffix('.__init__') for name in names]}:\n"
        "        importlib.import_module(name)\n"
        "print(len(compilations.buffer), *{name.split('.')[0] for name in sys.modules})"
    )
    compiled, *loaded = run_python(code, tmp_path).split()
    assert compiled == "0"
    assert not NEVER_IMPORTED & set(loaded)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_a_module_says_what_it_is(path):
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text()))
    assert docstring is not None
    assert re.match(r"\S.*[.?]$", docstring.splitlines()[0])


def test_every_pin_is_a_plain_release():
    pins = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==\d+(\.\d+)*", pin)] == []


def test_every_requirement_has_a_pin_that_satisfies_it():
    pins = dict(pin.split("==") for pin in (ROOT / "scripts" / "constraints.txt").read_text().splitlines())
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    extras = PROJECT["optional-dependencies"]
    for text in [*PROJECT["dependencies"], *extras["train"], *extras["dev"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), text


def test_the_version_is_stated_alike():
    assert ddl_gym.__version__ == PROJECT["version"]
