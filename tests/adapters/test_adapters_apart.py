"""Each adapter without its library says what to install; with it, its examples run."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import polarbear.adapters
from polarbear.base.errors import install_line

FOLDER = Path(polarbear.adapters.__file__).parent
SHARED = {"__init__", "samples"}

#: Module → its library to import, by name and by extra, and what needs it if not the import alone.
ADAPTERS = {
    "pytorch": ("torch", "PyTorch", "torch", ""),
    "tf_data": ("tensorflow", "TensorFlow", "tensorflow", "dataset(stream, view)"),
    "jax_arrays": ("jax", "JAX", "jax", "arrays(stream, view)"),
    "grain_source": ("grain", "Grain", "jax", ""),
    "hugging_face": ("datasets", "Hugging Face datasets", "datasets", "dataset(stream, view)"),
    "torch_metric": ("torchmetrics", "TorchMetrics", "torchmetrics", ""),
    "avalanche": ("avalanche", "Avalanche", "avalanche", ""),
    "continuum": ("continuum", "Continuum", "continuum", ""),
    "transformers": ("transformers", "Hugging Face transformers", "transformers", ""),
}

WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {refused!r}:
            raise ModuleNotFoundError(f"{{name}} is refused here", name=name)

sys.meta_path.insert(0, Refuse())
from polarbear import load
from polarbear.base.errors import PolarbearError
stream = load("iirc-shapes")
view = stream[0].train
try:
    from polarbear.adapters.{module} import *
    {call}
except PolarbearError as error:
    print(error)
"""


def modules() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in SHARED)


def test_every_adapter_is_tested_here_and_is_short() -> None:
    assert modules() == sorted(ADAPTERS)
    for name in modules():
        assert len((FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.parametrize("module", ADAPTERS)
def test_without_its_library_an_adapter_says_what_to_install(module: str) -> None:
    refused, library, extra, call = ADAPTERS[module]
    code = WITHOUT.format(module=module, refused=refused, call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    expected = f"this adapter needs {library}: {install_line(extra)}\n"
    assert done.stdout == expected, done.stderr


@pytest.mark.parametrize("module", [*ADAPTERS, *sorted(SHARED - {"__init__"})])
def test_the_examples_of_an_adapter_run(library, module: str) -> None:
    if module in ADAPTERS:
        library(ADAPTERS[module][0])
    imported = importlib.import_module(f"polarbear.adapters.{module}")
    failed, _ = doctest.testmod(imported, optionflags=doctest.FAIL_FAST)
    assert failed == 0
