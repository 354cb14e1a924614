"""CUDA kernels on the CPU: g++ compiles the same source after `emulated_gpu.h`."""

import ctypes
import hashlib
import mmap
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch

HEADER = Path(__file__).with_suffix(".h")
# The header answers the checks itself, so the sanitizers' library is not linked. Hidden: no two
# kernels' libraries may share the header's variables. Fortified, jumps between stacks are refused.
COMPILE = [
    *("g++", "-std=c++17", "-O2", "-fPIC", "-w", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE"),
    *("-fvisibility=hidden", "-fsanitize=alignment,bounds"),
    *("-fno-sanitize-recover=alignment,bounds", "-c"),
]
LINK = ["g++", "-shared"]
LAUNCHER = """
#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED const char *parameters() {{ return emulated::parameters({name}); }}

EXPORTED const char *launch(const dim3 *grid, const dim3 *block, size_t shared, void **args) {{
    return emulated::run({name}, *grid, *block, shared, args);
}}
"""
# As on an H100 or H200; more than the first needs `set_shared_memory_config`.
SHARED_BYTES = 48 * 1024
SHARED_BYTES_AT_MOST = 227 * 1024
NO_ACCESS = 0  # PROT_NONE, which Python's mmap does not name
Size = tuple[int, int, int]


class Guarded:
    """A copy of a tensor with no memory before and behind it: what strays there ends the launch."""

    def __init__(self, tensor: torch.Tensor) -> None:
        assert tensor.is_cpu, "the emulated GPU takes tensors on the CPU"
        assert tensor.is_contiguous(), "kernels take tensors without gaps"
        self.tensor, self.bytes = tensor, tensor.numel() * tensor.element_size()
        page = mmap.PAGESIZE
        room = -(-(self.bytes + 15) // page) * page
        self._memory = mmap.mmap(-1, page + room + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for guard in (start, start + page + room):
            if ctypes.CDLL(None).mprotect(ctypes.c_void_p(guard), page, NO_ACCESS):
                raise OSError("memory cannot be guarded")
        # As near to the end as lets it be aligned to 16 bytes as the tensor is.
        last = start + page + room - self.bytes
        self.at = last - (last - tensor.data_ptr()) % 16
        ctypes.memmove(self.at, tensor.data_ptr(), self.bytes)

    def put_back(self) -> None:
        """Give the tensor what was written to the copy."""
        ctypes.memmove(self.tensor.data_ptr(), self.at, self.bytes)


class Kernel:
    """Called as what `torch.cuda._compile_kernel` returns is called, with tensors on the CPU."""

    def __init__(self, library: Path) -> None:
        # PyDLL keeps other Python threads out: there is one pool of fibers.
        functions = ctypes.PyDLL(str(library))
        self._launch = functions.launch
        self._launch.restype = ctypes.c_char_p
        functions.parameters.restype = ctypes.c_char_p
        self._parameters: str = functions.parameters().decode()
        self._configured_bytes = 0

    def __call__(
        self,
        grid: Size = (1, 1, 1),
        block: Size = (1, 1, 1),
        args: Any = (),
        shared_mem: int = 0,
        stream: object = None,
    ) -> None:
        """Run every block, and raise what the emulation found wrong."""
        threads, *others = block
        if others != [1, 1] or threads % 32 or not 0 < threads <= 1024:
            raise ValueError(f"block {block}: whole warps in x are emulated, up to 1024 threads")
        if shared_mem >= SHARED_BYTES and shared_mem > self._configured_bytes:
            raise RuntimeError(f"{shared_mem} bytes of shared memory: configure them first")
        copies: dict[int, Guarded] = {}  # a tensor may be given twice
        values = [_as_c(arg, copies) for arg in args]
        passed = "".join(letter for letter, _ in values)
        if passed != self._parameters:
            raise TypeError(f"the kernel takes {self._parameters!r}, not {passed!r}")
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for _, v in values))
        wrong = self._launch(
            (ctypes.c_uint * 3)(*grid),
            (ctypes.c_uint * 3)(*block),
            ctypes.c_size_t(shared_mem),
            pointers,
        )
        for copy in copies.values():
            copy.put_back()
        if wrong is not None:
            raise RuntimeError(wrong.decode())

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """Allow launches with this much shared memory."""
        if shared_mem_bytes > SHARED_BYTES_AT_MOST:
            raise RuntimeError(f"{shared_mem_bytes} bytes of shared memory are too many")
        self._configured_bytes = shared_mem_bytes


def compile_kernel(kernel_source: str, kernel_name: str, **ignored: object) -> Kernel:
    """Compile as `torch.cuda._compile_kernel` does; the name may be `forward<16, true>`.

    A source and name compiled before are taken from the temporary folder.
    """
    launcher = LAUNCHER.format(name=kernel_name)
    parts = {HEADER.name: HEADER.read_text(), "kernel.cu": kernel_source, "launcher": launcher}
    text = "\n".join(f'#line 1 "{part}"\n{lines}' for part, lines in parts.items())
    digest = hashlib.sha256("\0".join([*COMPILE, *LINK, text]).encode()).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"polarbear-emulated-gpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"{digest}.so"
    if not library.exists():
        _build(text, library)
    return Kernel(library)


def _build(text: str, library: Path) -> None:
    # Compiled apart and moved at once: several test processes may want the same kernel.
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        source, compiled, linked = (Path(folder) / f"kernel.{end}" for end in ("cpp", "o", "so"))
        source.write_text(text)
        _run([*COMPILE, str(source), "-o", str(compiled)])
        _run([*LINK, str(compiled), "-o", str(linked)])
        linked.replace(library)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"g++ failed:\n{done.stderr}")


def _as_c(arg: object, copies: dict[int, Guarded]) -> tuple[str, Any]:
    """What kind of parameter it is for, in the header's letters, and the value in C."""
    if isinstance(arg, torch.Tensor):
        at = arg.data_ptr()
        if at not in copies:
            copies[at] = Guarded(arg)
        assert copies[at].bytes == arg.nbytes, "two tensors of different sizes share memory"
        return "p", ctypes.c_void_p(copies[at].at)
    if isinstance(arg, int):
        return "i", ctypes.c_int(arg)
    if isinstance(arg, float):
        return "d", ctypes.c_double(arg)
    raise TypeError(f"{type(arg)} cannot be passed to a kernel")
