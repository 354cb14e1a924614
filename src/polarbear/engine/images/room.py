"""How much memory there is for images, on a device and on the host."""

import os
from pathlib import Path

import torch

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Return the bytes that are free on a device; what this process has left over is free, too.

    Images of other runs of a fleet are not: they were there first.
    """
    if device.type != "cuda":
        return free_host_bytes()
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def free_host_bytes(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """Return the bytes of the host's memory that are free, or can be made so; 0 if nobody can tell.

    A container may have less than its machine.
    """
    machine, container = _available(meminfo), _left_to_container(cgroup)
    return machine if container is None else min(machine, container)


def _available(meminfo: Path) -> int:
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:  # no Linux: all there is, of which others have some
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0


def _left_to_container(cgroup: Path) -> int | None:
    """Return what a container's limit leaves, or None where there is none; file pages are free."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        pairs = (line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        cached = int(dict(pairs)["inactive_file"])
    except (OSError, KeyError, ValueError):  # "max" is no number
        return None
    return max(0, limit - used + cached)
