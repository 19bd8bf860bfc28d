"""What README.md says can be run, runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[f"snippet{i}" for i in range(len(SNIPPETS))])
def test_the_snippet_runs_and_prints(snippet, capsys):
    exec(compile(snippet, "README.md", "exec"), {"__name__": "readme"})
    assert "'unfinished': 0" in capsys.readouterr().out


def test_there_is_a_snippet_on_the_first_screen():
    assert README.index("```python") < README.index("## ") < 4_000


def test_every_file_and_script_named_exists():
    named = set(re.findall(r"\b((?:scripts|tests|ddl_gym|traces)/[\w.]+\w)", README)) - {
        "ddl_gym/DelayTimers",
        "ddl_gym/JobOffer",
    }
    files = {name for name in named if not re.match(r"ddl_gym/\w+-?v?\d*$", name)}
    assert len(files) > 8
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


def test_every_named_policy_and_environment_is_described():
    import ddl_gym

    assert all(f"`{name}`" in README for name in (*ddl_gym.POLICIES, *ddl_gym.ENV_IDS))
