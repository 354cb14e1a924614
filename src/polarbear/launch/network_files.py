"""Frozen networks of checkpoints: one file each, written once for all checkpoints that have it.

A file is named by the checksum of its bytes, so that two checkpoints, or a teacher and a network
that a method keeps, share it. To serialise and hash twenty networks at every checkpoint would take
longer than training in between: whether one is as it was when it was written is asked of the
device it lies on, in one number each.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from polarbear.base.files import write_whole

State = Mapping[str, Tensor]

#: A file of a network, and what a killed process left of one.
OWN = re.compile(r"network-([0-9a-f]{64})\.safetensors|\.network-[0-9a-f]{64}\.safetensors\.part")

Layout = tuple[tuple[str, torch.dtype, torch.Size], ...]


@dataclass
class Written:
    """The networks of the last checkpoint that this process wrote, by what they are like."""

    checksums: dict[tuple[Layout, int], str] = field(default_factory=dict)


def write_networks(folder: Path, networks: Mapping[str, State], written: Written) -> dict[str, str]:
    """Write the networks that are not ``written`` yet; returns the checksum of each by its name.

    A process writes each once even where its file is there: it may be damaged.
    """
    states = list(networks.values())
    keys = [(_layout(s), mark) for s, mark in zip(states, fingerprints(states), strict=True)]
    earlier, written.checksums = written.checksums, {}
    for key, state in zip(keys, states, strict=True):
        checksum = written.checksums.get(key) or earlier.get(key)
        if checksum is None or not _file(folder, checksum).is_file():
            checksum = _write(folder, state)
        written.checksums[key] = checksum
    return {name: written.checksums[key] for name, key in zip(networks, keys, strict=True)}


def _write(folder: Path, state: State) -> str:
    # Cloned: the format takes no two names of one memory, as tied weights have.
    content = serialised({name: t.detach().cpu().clone() for name, t in state.items()})
    checksum = hashlib.sha256(content).hexdigest()
    write_whole(_file(folder, checksum), lambda file: file.write(content))
    return checksum


def read_network(folder: Path, checksum: str) -> dict[str, Tensor]:
    """Read a network; one that is not what was written is a ValueError."""
    content = _file(folder, checksum).read_bytes()
    if hashlib.sha256(content).hexdigest() != checksum:
        raise ValueError(f"{_file(folder, checksum).name} is not what was written")
    return safetensors.torch.load(content)


def remove_networks(folder: Path, but: set[str]) -> None:
    """Remove the files of all networks but those with these checksums."""
    for file in folder.glob("*network-*"):
        match = OWN.fullmatch(file.name)
        if match and file.is_file() and match[1] not in but:
            file.unlink()


def serialised(tensors: State) -> bytes:
    """Return tensors as the bytes of a safetensors file."""
    return safetensors.torch.save({name: t.contiguous() for name, t in tensors.items()})


@torch.no_grad()
def fingerprints(states: list[State]) -> list[int]:
    """Return a number for the content of each; others have another, but once in 2**64.

    Worked out where the tensors lie, and waited for once.

    >>> one, other = {"w": torch.tensor([1.0, -2.0])}, {"w": torch.tensor([-1.0, 2.0])}
    >>> first, same, flipped = fingerprints([one, {"w": one["w"].clone()}, other])
    >>> first == same, first == flipped
    (True, False)
    """
    factors = lru_cache(maxsize=1)(_factors)  # most networks of a run are of one size
    contents = map(_words, states)
    found = [(_scrambled(c) * factors(len(c), c.device)).sum() for c in contents]
    marks: list[int] = torch.stack([one.to(found[0].device) for one in found]).tolist()
    return marks


def _words(state: State) -> Tensor:
    """Return all bytes of a network as words of 8."""
    content = torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in state.values()])
    return torch.nn.functional.pad(content, (0, -len(content) % 8)).view(torch.int64)


def _factors(places: int, device: torch.device) -> Tensor:
    """Return an odd number for each place, so that words that change places change their sum."""
    return _scrambled(torch.arange(1, places + 1, device=device)) | 1


def _scrambled(words: Tensor) -> Tensor:
    """Return whole numbers whose every bit depends on the higher and the lower ones, modulo 2**64.

    Without it, two weights that change their signs would cancel out in a sum.
    """
    for factor in (-0x61C8864680B583EB, -0x40A7B892E31B1A47):
        words = (words ^ (words >> 29)) * factor
    return words ^ (words >> 32)


def _layout(state: State) -> Layout:
    return tuple((name, tensor.dtype, tensor.shape) for name, tensor in state.items())


def _file(folder: Path, checksum: str) -> Path:
    return folder / f"network-{checksum}.safetensors"
