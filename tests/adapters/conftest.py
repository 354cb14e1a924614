"""Libraries that may be absent: their tests skip and name them; `make test-adapters` has all.

There an absent library is a failure: `POLARBEAR_ALL_LIBRARIES` says that all must be installed.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import numpy as np
import pytest

import polarbear

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # batches are too small to share between cores

# PyTorch's builds for GPUs bring Triton. Imported after TensorFlow it ends the process (both carry
# LLVM), before it it does not.
if find_spec("triton") is not None:
    importlib.import_module("triton")

#: Warnings these libraries give about themselves or about each other.
THEIRS = (
    "ignore::DeprecationWarning:avalanche",
    "ignore:no QP solver found:UserWarning",
    "ignore:No loggers specified:UserWarning",
    "ignore:Call to deprecated function update:DeprecationWarning",
)


def pytest_configure(config: pytest.Config) -> None:
    for line in THEIRS:
        config.addinivalue_line("filterwarnings", line)


def needs(library: str) -> ModuleType:
    """Import a library, or skip the test and name what is absent."""
    if find_spec(library) is None:
        if os.environ.get("POLARBEAR_ALL_LIBRARIES"):
            pytest.fail(f"{library} is not installed, and here all libraries must be")
        pytest.skip(f"{library} is not installed here: `make test-adapters` has it")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _complete_torchvision()
        return importlib.import_module(library)


def _complete_torchvision() -> None:
    """Name the two operators torchvision asks for on import, where its compiled part is missing.

    So it is where its wheel was built for CUDA and torch for the CPU. Nothing here calls them.
    """
    if "torchvision" in sys.modules or find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        import torch

        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        _KEPT.append(library)
        importlib.import_module("torchvision")


#: A library's operators live as long as this object.
_KEPT: list[object] = []


@pytest.fixture(scope="session")
def library() -> Callable[[str], ModuleType]:
    return needs


class Decoded:
    """Images whose size nobody knows before they are read, as in a folder of files."""

    def __init__(self, images: np.ndarray) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: object) -> np.ndarray:
        return self.images[rows].copy()


class Mapped(Decoded):
    """Images of one known size in a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape


@cache
def shapes(order: int = 0, stored: str = "array") -> polarbear.Stream:
    """iirc-shapes, its pixels stored in one of the ways a source can have."""
    stream = polarbear.load("iirc-shapes", order=order)
    if stored == "array":
        return stream
    kind = {"decoded": Decoded, "mapped": Mapped}[stored]
    source = stream.source
    changed = replace(source, train=kind(source.train), test=kind(source.test))
    return replace(stream, source=changed)


@pytest.fixture(scope="session")
def stream() -> polarbear.Stream:
    return shapes()


@pytest.fixture(scope="session")
def shapes_stream() -> Callable[[int, str], polarbear.Stream]:
    return shapes
