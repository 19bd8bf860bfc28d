"""Which networks do the jobs train? Profiles of DNNs (models.csv) and seeded mixes of them.

Columns of models.csv: `gradient_bytes` are those of one all-reduce, 4 bytes a parameter (gradients are reduced in fp32 also under mixed
precision), parameters counted from the architectures, equal to timm's and torchvision's counts where those list the model; `skew` is the largest
tensor / model size (Tiresias, Gu et al., NSDI'19); `compute_s_*` are seconds of one iteration on one GPU with mixed precision, with their
source. Derived times: A100 = V100 / 1.75 for vision and / 2.6 for the rest (the ratios of ResNet-50 and BERT-base where both are
published); H100 = A100 / 2.2 throughout, an estimate.
"""

import csv
import difflib
from importlib import resources
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class ModelCatalogue(NamedTuple):
    """The DNN profiles, one row a model; D models."""

    name: tuple[str, ...]
    domain: tuple[str, ...]
    gradient_bytes: NDArray[np.float64]  # (D,) bytes of one all-reduce
    skew: NDArray[np.float64]  # (D,) largest tensor / model size
    compute_s_v100: NDArray[np.float64]  # (D,) seconds an iteration
    compute_s_a100: NDArray[np.float64]  # (D,)
    compute_s_h100: NDArray[np.float64]  # (D,)

    def compute_s(self, gpu: str) -> NDArray[np.float64]:
        """(D,) seconds an iteration on one GPU of that generation."""
        column: NDArray[np.float64] = getattr(self, f"compute_s_{gpu}")
        return column


def _load() -> ModelCatalogue:
    with resources.files("ddl_gym").joinpath("models.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = ModelCatalogue._fields[2:]
    return ModelCatalogue(
        tuple(row["model"] for row in rows),
        tuple(row["domain"] for row in rows),
        *(np.array([float(row[name]) for row in rows]) for name in numbers),
    )


CATALOGUE = _load()

# Shares of jobs by model; our own choices: "default" spreads over communication-heavy and -light networks of all domains.
MIXES: dict[str, dict[str, float]] = {
    "default": {"resnet50": 4, "vgg16": 2, "vgg19": 1, "inception_v3": 1, "mobilenet_v2": 1, "vit_b16": 2}
    | {"bert_base": 3, "bert_large": 2, "gpt2_small": 2, "deepspeech2": 1, "lstm_lm": 1},
    "vision": {"resnet50": 4, "resnet101": 1, "vgg16": 2, "inception_v3": 1, "mobilenet_v2": 1, "densenet121": 1, "vit_b16": 2},
    "language": {"bert_base": 3, "bert_large": 3, "gpt2_small": 3, "lstm_lm": 1},
    "uniform": dict.fromkeys(CATALOGUE.name, 1.0),
}


def model_index(name: str) -> int:
    """Row of a model in the catalogue; ValueError suggests near names."""
    if name in CATALOGUE.name:
        return CATALOGUE.name.index(name)
    near = difflib.get_close_matches(name, CATALOGUE.name, n=3, cutoff=0.4) or CATALOGUE.name
    raise ValueError(f"unknown model {name!r}; known: {', '.join(near)}")


def assign_models(gpus: NDArray[np.int64], mix: str, seed: int) -> NDArray[np.int64]:
    """(J,) models drawn by the shares of a mix, independently of demand; the same seed draws the same."""
    if mix not in MIXES:
        raise ValueError(f"unknown model mix {mix!r}; known: {', '.join(MIXES)}")
    rows = np.array([model_index(name) for name in MIXES[mix]], np.int64)
    shares = np.array(list(MIXES[mix].values()), np.float64)
    rng = np.random.Generator(np.random.PCG64([seed, 0x6D6F64656C]))
    return rows[rng.choice(len(rows), size=len(gpus), p=shares / shares.sum())]
