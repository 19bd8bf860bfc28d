"""What does the cluster look like? Racks of machines of GPUs, and how fast the links between them are."""

from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf, isfinite
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

NONE = -1  # absent index in arrays

# GPU generation: (bus bandwidth inside a machine, one machine's network interfaces), GB/s = 1e9 bytes/s. Machine:
# nccl-tests bus bandwidth of 8 GPUs over NVLink: A100 230 to 232 (NVIDIA/nccl issue 527), H100 370 (largest bus
# bandwidth noted in astra-sim's HGX-H100 configuration), V100 130 (our estimate). Network: one 100 Gb/s interface
# 12.2 measured (NVIDIA/nccl-tests issue 29), 4 x 200 Gb/s 86 (issue 175), 8 x 400 Gb/s 350 (our estimate, 400
# nominal).
_LINKS = {"v100": (130.0, 12.2), "a100": (232.0, 86.0), "h100": (370.0, 350.0)}


class Tier(IntEnum):
    """Placement tier: the widest boundary that a job's GPUs cross."""

    MACHINE = 0
    RACK = 1
    NETWORK = 2


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """Shape and links of a homogeneous cluster; bandwidths in GB/s (1e9 bytes/s), infinite ones are allowed.

    Link speeds left at None become those of the GPU generation (so `replace(spec, gpu=...)` must set them to None
    again). Latencies per ring step: NCCL's own model (NVIDIA/nccl, src/graph/tuning.cc, protocol Simple: 3.4 us
    NVLink, 9.6 us network); across racks 14 us is our estimate. ValueError names a field that no cluster can have.
    """

    racks: int
    machines_per_rack: int
    gpus_per_machine: int
    gpu: str = "v100"
    machine_gb_s: float | None = None  # bus bandwidth of a GPU inside its machine
    nic_gb_s: float | None = None  # a machine's network interfaces together, shared by its GPUs
    oversubscription: float = 1.0  # a machine's bandwidth across racks is nic_gb_s / oversubscription
    machine_alpha_s: float = 3.4e-6
    rack_alpha_s: float = 9.6e-6
    network_alpha_s: float = 14e-6

    def __post_init__(self) -> None:
        """Fill in the links and refuse what no cluster can be."""
        for field in ("racks", "machines_per_rack", "gpus_per_machine"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"cluster: {field} is {value!r}, it must be a whole number of at least 1")
        if self.gpu not in _LINKS:
            raise ValueError(f"cluster: unknown GPU generation {self.gpu!r}; known: {', '.join(_LINKS)}")
        for field, default in zip(("machine_gb_s", "nic_gb_s"), _LINKS[self.gpu], strict=True):
            if getattr(self, field) is None:
                object.__setattr__(self, field, default)
            if not (_is_number(getattr(self, field)) and 0 < getattr(self, field) <= inf):
                raise ValueError(f"cluster: {field} is {getattr(self, field)!r}, it must be a positive number")
        for field, least in (
            ("oversubscription", 1),
            ("machine_alpha_s", 0),
            ("rack_alpha_s", 0),
            ("network_alpha_s", 0),
        ):
            value = getattr(self, field)
            if not (_is_number(value) and isfinite(value) and value >= least):
                raise ValueError(f"cluster: {field} is {value!r}, it must be a finite number of at least {least}")

    @property
    def machines(self) -> int:
        """Machines in all racks."""
        return self.racks * self.machines_per_rack

    @property
    def gpus_per_rack(self) -> int:
        """GPUs of one rack."""
        return self.machines_per_rack * self.gpus_per_machine

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return self.racks * self.gpus_per_rack

    def best_tier(self, gpus: ArrayLike) -> NDArray[np.int64]:
        """The best tier of each demand on the empty cluster, same shape; what fits nowhere counts as NETWORK."""
        demand = np.asarray(gpus)
        return (demand > self.gpus_per_machine).astype(np.int64) + (demand > self.gpus_per_rack)

    def __str__(self) -> str:
        """RxMxG@generation, as `parse_cluster` reads it; links are not told."""
        return f"{self.racks}x{self.machines_per_rack}x{self.gpus_per_machine}@{self.gpu}"


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


PRESETS: dict[str, ClusterSpec] = {
    str(racks * machines * 8): ClusterSpec(racks=racks, machines_per_rack=machines, gpus_per_machine=8)
    for racks, machines in ((2, 4), (4, 4), (8, 8), (32, 8), (39, 8), (128, 8))
}


def parse_cluster(text: str) -> ClusterSpec:
    """A preset ("512") or racks x machines x GPUs ("8x8x8"), each with an optional generation ("512@a100").

    ValueError for an unknown name or generation lists the known ones.
    """
    shape, at, gpu = text.strip().lower().partition("@")
    gpu = gpu if at else "v100"
    if gpu not in _LINKS:
        raise ValueError(f"cluster {text!r}: unknown GPU generation {gpu!r}; known: {', '.join(_LINKS)}")
    if shape in PRESETS:
        return replace(PRESETS[shape], gpu=gpu, machine_gb_s=None, nic_gb_s=None)
    parts = shape.split("x")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        known = ", ".join(PRESETS)
        raise ValueError(f"unknown cluster {text!r}; known: {known}, or give racks x machines x GPUs such as 8x8x8")
    racks, machines, gpus = (int(part) for part in parts)
    if racks * machines * gpus > 1_000_000:
        raise ValueError(f"cluster {text!r} has {racks * machines * gpus} GPUs, more than the supported 1,000,000")
    return ClusterSpec(racks=racks, machines_per_rack=machines, gpus_per_machine=gpus, gpu=gpu)
