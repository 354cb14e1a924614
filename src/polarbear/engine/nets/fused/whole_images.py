"""Whether the kernels for whole images work on a GPU: compiled, and compared with PyTorch."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import torch

from polarbear.base.out_of_memory import ran_out
from polarbear.engine.nets.fused import agreement, blocks, means, stem, widen

log = logging.getLogger("polarbear")


@cache
def work(device: torch.device, height: int, width: int) -> bool:
    """Whether these kernels work here, tried once; if they should and do not, say so."""
    try:
        if not suit_images(device, height, width):
            return False
        try_out(device)
    except Exception as error:  # a private function of PyTorch, and whatever a GPU may lack
        if ran_out(error):
            raise  # another time there may be room
        log.warning(
            "the kernels for whole images do not work here, so slower ones are used: %s: %s",
            type(error).__name__,
            error,
        )
        return False
    return True


def suit_images(device: torch.device, height: int, width: int) -> bool:
    """Whether these kernels can do images of this size on this GPU: it takes an H100's memory."""
    if (height, width) != (32, 32) or not hasattr(torch.cuda, "_compile_kernel"):
        return False
    properties = torch.cuda.get_device_properties(device)
    needed = max(shared for _, shared in kernels())
    return getattr(properties, "shared_memory_per_block_optin", 0) >= needed


def try_out(device: torch.device) -> None:
    """Compile all kernels, several at a time, and look whether they give PyTorch's numbers."""

    def compiled(kernel: tuple[str, int]) -> None:
        with torch.cuda.device_of(torch.zeros(1, device=device)):  # type: ignore[no-untyped-call]
            blocks.compiled(*kernel)

    with _any_cuda_home(), ThreadPoolExecutor() as pool:
        [*pool.map(compiled, kernels())]
    agreement.require(device, 32, 32, whole=True)


def kernels() -> Iterator[tuple[str, int]]:
    """Return all kernels, and the shared memory of each."""
    yield from stem.kernels()
    yield from widen.kernels()
    yield from means.kernels()
    yield from blocks.kernels()


@contextmanager
def _any_cuda_home() -> Iterator[None]:
    """Let PyTorch look for CUDA's headers in any folder: it insists on one, but none is needed."""
    from torch.utils import cpp_extension  # imports setuptools, which nothing else here wants

    before = cpp_extension.CUDA_HOME
    cpp_extension.CUDA_HOME = before or str(blocks.FOLDER)
    try:
        yield
    finally:
        cpp_extension.CUDA_HOME = before
