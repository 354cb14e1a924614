"""Checkpoints: safetensors and JSON, written whole, verified when read, never a pickle."""

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from polarbear.base.files import plain, write_json, write_whole
from polarbear.base.sealed import sealed, unsealed
from polarbear.launch.network_files import (
    State,
    Written,
    read_network,
    remove_networks,
    serialised,
    write_networks,
)
from polarbear.runs.guards import refuse_links

log = logging.getLogger("polarbear")

KEPT = 2  # the newest may be damaged; the one before is then gone on from

#: Its files, and what a killed process left of them: nothing else in the folder is touched.
OWN = re.compile(r"(\d{8})\.(json|safetensors)|\.(\d{8})\.(json|safetensors)\.part")


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, the plain facts that go with them, and frozen networks.

    These have a file each, which checkpoints share. Earlier versions had them among the tensors.
    """

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]
    networks: Mapping[str, State] = field(default_factory=dict)


def save(folder: Path, number: int, checkpoint: Checkpoint, written: Written | None = None) -> None:
    """Write checkpoint ``number``; older ones beyond the last two are removed.

    The JSON file comes last and names the others' checksums: without it there is no checkpoint.
    Networks that are ``written`` already are not written again.
    """
    refuse_links(folder.parent)
    networks = {}
    if checkpoint.networks:
        networks = write_networks(folder, checkpoint.networks, written or Written())
    content = serialised(checkpoint.tensors)
    stem = f"{number:08d}"
    write_whole(folder / f"{stem}.safetensors", lambda file: file.write(content))
    facts = {"sha256": hashlib.sha256(content).hexdigest(), "facts": plain(checkpoint.facts)}
    facts |= {"networks": networks} if networks else {}
    write_json(folder / f"{stem}.json", sealed(facts))
    _remove(folder, but=numbers(folder)[:KEPT])


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the checkpoints there are, whole or not, the newest first."""
    found = (OWN.fullmatch(file.name) for file in folder.glob("*.json"))
    return sorted((int(match[1]) for match in found if match), reverse=True)


def clear(folder: Path) -> None:
    """Remove all checkpoints."""
    _remove(folder, but=[])


def _remove(folder: Path, but: list[int]) -> None:
    refuse_links(folder.parent)
    for file in folder.glob("*"):
        match = OWN.fullmatch(file.name)
        if match and file.is_file() and int(match[1] or match[3]) not in but:
            file.unlink()
    remove_networks(
        folder, but={checksum for number in but for checksum in _refers(folder, number)}
    )


def _refers(folder: Path, number: int) -> list[str]:
    """Return the checksums of the networks that a checkpoint has; a damaged one has none."""
    try:
        content = unsealed((folder / f"{number:08d}.json").read_bytes(), required=False)
        return list(_networks(content).values())
    except (OSError, ValueError, TypeError):
        return []


def _networks(content: Mapping[str, Any]) -> dict[str, str]:
    found = content.get("networks", {})
    if not isinstance(found, dict):
        raise TypeError(f"its networks are {found!r}")
    return found


def from_newest(folder: Path, *, required: bool = True) -> Iterator[tuple[int, Checkpoint]]:
    """Go through the whole checkpoints, the newest first; damaged ones are passed over, and named.

    Earlier versions wrote facts without a seal: for their runs it is not ``required``.
    """
    for number in numbers(folder):
        file = folder / f"{number:08d}.json"
        try:
            found = _read(file, required=required)
        except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
            log.warning("checkpoint %s is damaged, the one before is used: %s", file, error)
        else:
            yield number, found


def _read(file: Path, *, required: bool) -> Checkpoint:
    content = unsealed(file.read_bytes(), required=required)
    tensors = file.with_suffix(".safetensors").read_bytes()
    if hashlib.sha256(tensors).hexdigest() != content["sha256"]:
        raise ValueError("its tensors are not those that were written")
    if not isinstance(content["facts"], dict):
        raise TypeError(f"its facts are {content['facts']!r}")
    networks = {n: read_network(file.parent, check) for n, check in _networks(content).items()}
    return Checkpoint(safetensors.torch.load(tensors), content["facts"], networks)
