"""Whether convolutions in bf16 work on this CPU: tried in a process of its own, once a machine.

On some CPUs, as an Intel Xeon with AMX in a virtual machine, oneDNN's backward pass dies of an
illegal instruction, which would take the whole process along.
"""

import hashlib
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch

from polarbear.base.errors import PolarbearError
from polarbear.base.notes import read_notes, write_note

REMEDY = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}  # without AMX
SECONDS = 180  # PyTorch is imported within 5 from a disk; from a busy file server, in minutes

# The kinds of convolution our networks have, forwards and backwards, for full and partial batches.
PROGRAM = """
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except ImportError:
    pass
import torch
from torch import nn

torch.set_num_threads(1)
shapes = [(3, 16, 3, 1), (16, 16, 3, 1), (16, 32, 3, 2), (32, 64, 1, 2), (64, 128, 3, 2)]
layers = [nn.Conv2d(i, o, k, s, padding=k // 2, bias=False) for i, o, k, s in shapes]
blocks = [nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU()) for conv in layers]
for stem in (nn.Identity(), nn.Conv2d(3, 3, 7, 2, padding=3)):
    net = nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    net.to(memory_format=torch.channels_last)
    for images in (128, 17, 2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(torch.rand(images, 3, 32, 32)).float().square().mean()
        loss.backward()
"""


def refuse_unless_it_works() -> None:
    """Refuse bf16 where it would end this process, with what helps here."""
    why = _fault(_relevant(os.environ))
    if why is None:
        return
    helps = _fault(_relevant({**os.environ, **REMEDY})) is None
    ((name, value),) = REMEDY.items()
    first = f"set {name}={value} in the environment before Python starts, or " if helps else ""
    raise PolarbearError(
        f"bf16 cannot be used on this CPU: a convolution tried in a process of its own {why}. "
        f"To go on, {first}use --precision fp32"
    )


def _relevant(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return what decides in an environment which instructions are used."""
    names = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
    return tuple((name, environment[name]) for name in names if name in environment)


@cache
def _fault(instructions: tuple[tuple[str, str], ...]) -> str | None:
    """Return how a child process with these variables ended that tried bf16; None if well."""
    key = f"{_processor()} torch {torch.__version__} {dict(instructions)}"
    known = read_notes("cpu-bf16").get(key)
    if known == "works":
        return None
    if isinstance(known, str):
        return known
    code, why = _try_out(dict(instructions))
    # Anything else, such as a lack of memory, may end otherwise the next time.
    if code in (0, -signal.SIGILL):
        write_note("cpu-bf16", key, why or "works")
    return why


def _try_out(instructions: Mapping[str, str]) -> tuple[int | None, str | None]:
    """Return the exit code of a child process that tries bf16, and how it failed."""
    # The child must find the PyTorch of this process, whatever changed its path.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM],
            env={**os.environ, "PYTHONPATH": path, **instructions},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            start_new_session=True,  # Ctrl-C is for this process
        )
    except subprocess.TimeoutExpired:
        return None, f"took more than {SECONDS} s"
    except OSError as error:
        return None, f"could not be started ({error})"
    if child.returncode < 0:
        return child.returncode, f"died of {signal.Signals(-child.returncode).name}"
    last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return child.returncode, f"failed: {last}" if child.returncode else None


def _processor() -> str:
    """Return a name of this processor and of what it can do."""
    kept = ("vendor_id", "cpu family", "model", "stepping", "flags", "CPU", "Features")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not on Linux
        lines = []
    facts = sorted({line for line in lines if line.startswith(kept)})
    digest = hashlib.sha256("\n".join([platform.processor(), *facts]).encode())
    return f"{platform.machine()} {digest.hexdigest()[:16]}"
