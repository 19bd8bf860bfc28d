"""A Gymnasium environment around a trace-driven simulator of a GPU cluster that trains distributed deep-learning jobs.

Importing it registers the environments and nothing else: no compilation, no torch.
"""

import gymnasium as _gymnasium

from ddl_gym.policies import POLICIES, Policy, named_policy

__all__ = ["ENV_IDS", "POLICIES", "Policy", "__version__", "named_policy"]

__version__ = "0.1.0"

ENV_IDS = tuple(f"ddl_gym/{name}-v0" for name in ("DelayTimers", "ClassTimers", "DelayTimersDiscrete", "JobOffer"))

_DEFAULTS = {"ddl_gym/ClassTimers-v0": {"sensitivity_edges": [0.1, 0.5], "service_edges": [3_600.0, 86_400.0]}}

for _id in ENV_IDS:
    _name = _id.split("/")[1].removesuffix("-v0")
    if _id not in _gymnasium.registry:
        _gymnasium.register(
            id=_id,
            entry_point=f"ddl_gym.env:{_name}Env",
            vector_entry_point=f"ddl_gym.vector_env:{_name}VectorEnv",
            kwargs=_DEFAULTS.get(_id, {}),
        )
