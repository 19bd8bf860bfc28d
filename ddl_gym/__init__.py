"""A Gymnasium environment around a trace-driven simulator of a GPU cluster that trains distributed deep-learning jobs.

Importing it registers the environments and nothing else: no compilation, no torch.
"""

import gymnasium as _gymnasium

from ddl_gym.policies import POLICIES, Policy, named_policy

__all__ = ["ENV_IDS", "POLICIES", "Policy", "__version__", "named_policy"]

__version__ = "0.1.0"

ENV_IDS = tuple(f"ddl_gym/{name}-v0" for name in ("DelayTimers", "ClassTimers", "DelayTimersDiscrete", "JobOffer"))

for _id in ENV_IDS:
    _name = _id.split("/")[1].removesuffix("-v0")
    if _id not in _gymnasium.registry:
        _gymnasium.register(
            id=_id,
            entry_point=f"ddl_gym.env:{_name}Env",
            vector_entry_point=f"ddl_gym.vector_env:{_name}VectorEnv",
        )
