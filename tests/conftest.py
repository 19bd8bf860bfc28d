"""Hypothesis profiles, and a Numba cache of its own for every version of the source: Numba does not notice edits in callees."""

import hashlib
import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

_source = b"".join(path.read_bytes() for path in sorted(Path(__file__).parents[1].glob("ddl_gym/*.py")))
_leg = "-".join(name for name in ("NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK") if os.environ.get(name, "0") != "0")
os.environ.setdefault(
    "NUMBA_CACHE_DIR",
    str(Path(tempfile.gettempdir()) / f"ddl_gym-numba-{hashlib.sha256(_source).hexdigest()[:12]}-{_leg or 'plain'}"),
)

_quiet = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("dev", max_examples=50, **_quiet)
settings.register_profile("ci", max_examples=300, derandomize=True, **_quiet)
settings.register_profile("nightly", max_examples=10_000, **_quiet)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
