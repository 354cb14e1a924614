"""Fixtures of many tests; those of real data skip, naming the reason, where it is absent."""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from polarbear.named.registry import _REGISTRY

# Without a GPU, Triton's kernels are interpreted. Triton reads this when it is imported, which may
# be as early as when the examples in src are collected.
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")

# Under nohup, or in the background of a script, SIGHUP or Ctrl-C is ignored, and what is ignored
# stays so in every program that a test starts; a handler is not inherited. This one does nothing,
# so that the tests themselves go on as they were asked to.
for number in (signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

# No property test has a deadline: the first example pays for imports and caches, and on a loaded
# machine any may. The adapters are tested where Hypothesis is not installed.
with suppress(ModuleNotFoundError):
    from hypothesis import settings

    settings.register_profile("polarbear", settings(), deadline=None, print_blob=True)
    settings.load_profile("polarbear")

SHARED = Path(__file__).parents[2] / "shared" / "data"


def _need(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"needs {path.name} in ../shared/data, which is not on this machine")
    return path


def _once(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all workers of one test run share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base
    return shared / name


@pytest.fixture(autouse=True)
def _registered_as_before() -> Iterator[None]:
    """Whatever benchmarks a test registers are gone after it."""
    before = dict(_REGISTRY)
    yield
    _REGISTRY.clear()
    _REGISTRY.update(before)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread, as tiny networks are slower with more and round otherwise."""
    from polarbear.launch.runner import threads

    with threads(1):
        yield


@pytest.fixture
def cpu_bf16() -> None:
    """Skip where bf16 would end the process, as on some CPUs it does."""
    from polarbear.base.errors import PolarbearError
    from polarbear.engine.cpu_bf16 import refuse_unless_it_works

    try:
        refuse_unless_it_works()
    except PolarbearError as error:
        pytest.skip(str(error))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that is refused, in one line and without other output; gives the line."""
    from polarbear.cli import main

    def run(*words: object) -> str:
        assert main([str(word) for word in words]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("polarbear: ")
        assert captured.err.count("\n") == 1
        return captured.err

    return run


@pytest.fixture(scope="session")
def cifar_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the official ``cifar-100-python`` files."""
    script = _need(SHARED / "unpack_cifar100.py")
    root = _once(tmp_path_factory, "cifar")
    with _lock(root):
        if not (root / "complete").exists():
            subprocess.run([sys.executable, script, root], check=True, capture_output=True)
            (root / "complete").touch()
    return root


@pytest.fixture(scope="session")
def imagenet_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real ImageNet images of all 1,000 wnids: ``train/<wnid>/`` (4 each), ``val/<wnid>/`` (2)."""
    archive = _need(SHARED / "imagenet-sample.tar")
    root = _once(tmp_path_factory, "imagenet")
    with _lock(root):
        if not (root / "complete").exists():
            with tarfile.open(archive) as tar:
                # As tarfile's documentation has it for Python before 3.11.4 (Debian 12).
                tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
                tar.extractall(root)
            (root / "complete").touch()
    return root / "imagenet-sample"


class _lock:  # noqa: N801
    """Lets one test worker unpack while the others wait."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "lock"

    def __enter__(self) -> None:
        import fcntl

        self.file = self.path.open("w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self.file.close()
