"""Which networks do the jobs train? Profiles of DNNs (models.csv) and seeded mixes of them.

Columns of models.csv: `gradient_bytes` are those of one all-reduce, 4 bytes a parameter (gradients are reduced in
fp32 also under mixed precision), parameters counted from the architectures, equal to timm's and torchvision's counts
where those list the model; `skew` is the largest tensor / model size (Tiresias, Gu et al., NSDI'19); `compute_s_*`
are seconds of one iteration of `batch_per_gpu` samples on one GPU with mixed precision unless the source says
otherwise.

Every time has a source. One that begins with "derived" was not measured on that GPU; `quality` is "measured" where
the V100 or the A100 time was, else "estimate". Rules of derivation:

* V100 = RTX 3090 where only the latter is published. They lie within 10 % for ResNet-50, BERT-base and BERT-large,
  but the older V100 measurements of VGG-16 and 19, ResNet-152 and DenseNet-161 are 2 to 3 times slower than an RTX
  3090 today, so these derived times may be optimistic;
* A100 = V100 / 2.06 for vision (ResNet-50 in this table) and V100 / 2.5 for the rest (between BERT-base and
  BERT-large);
* H100 = A100 / 2.2, our estimate, for every model.
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
    quality: tuple[str, ...]  # "measured" or "estimate"

    def compute_s(self, gpu: str) -> NDArray[np.float64]:
        """(D,) seconds an iteration on one GPU of that generation."""
        column: NDArray[np.float64] = getattr(self, f"compute_s_{gpu}")
        return column


def _load() -> ModelCatalogue:
    text = resources.files("ddl_gym").joinpath("models.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))

    def numbers(column: str) -> NDArray[np.float64]:
        return np.array([float(row[column]) for row in rows])

    return ModelCatalogue(
        name=tuple(row["model"] for row in rows),
        domain=tuple(row["domain"] for row in rows),
        gradient_bytes=numbers("gradient_bytes"),
        skew=numbers("skew"),
        compute_s_v100=numbers("compute_s_v100"),
        compute_s_a100=numbers("compute_s_a100"),
        compute_s_h100=numbers("compute_s_h100"),
        quality=tuple(row["quality"] for row in rows),
    )


CATALOGUE = _load()

# Shares of jobs by model, our own choices: "default" spreads over networks of all domains, heavy and light to
# communicate.
MIXES: dict[str, dict[str, float]] = {
    "default": {
        "resnet50": 4,
        "vgg16": 2,
        "vgg19": 1,
        "inception_v3": 1,
        "mobilenet_v2": 1,
        "vit_b16": 2,
        "bert_base": 3,
        "bert_large": 2,
        "gpt2_small": 2,
        "deepspeech2": 1,
        "lstm_lm": 1,
    },
    "vision": {
        "resnet50": 4,
        "resnet101": 1,
        "vgg16": 2,
        "inception_v3": 1,
        "mobilenet_v2": 1,
        "densenet121": 1,
        "vit_b16": 2,
    },
    "language": {"bert_base": 3, "bert_large": 3, "gpt2_small": 3, "lstm_lm": 1},
    "uniform": dict.fromkeys(CATALOGUE.name, 1.0),
}


def model_index(name: str) -> int:
    """Row of a model in the catalogue; ValueError suggests near names, all of them where none is near."""
    if name in CATALOGUE.name:
        return CATALOGUE.name.index(name)
    near = difflib.get_close_matches(name, CATALOGUE.name, n=3, cutoff=0.4) or CATALOGUE.name
    raise ValueError(f"unknown model {name!r}; known: {', '.join(near)}")


def assign_models(gpus: NDArray[np.int64], mix: str, seed: int) -> NDArray[np.int64]:
    """(J,) models drawn by the shares of a mix, independently of the demands `gpus` (J,); the same seed draws the same.

    ValueError for an unknown mix lists the known ones.
    """
    if mix not in MIXES:
        raise ValueError(f"unknown model mix {mix!r}; known: {', '.join(MIXES)}")
    rows = np.array([model_index(name) for name in MIXES[mix]], np.int64)
    shares = np.array(list(MIXES[mix].values()), np.float64)
    rng = np.random.Generator(np.random.PCG64([seed, 0x6D6F64656C]))
    return rows[rng.choice(len(rows), size=len(gpus), p=shares / shares.sum())]
