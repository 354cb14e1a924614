"""Checkpoints: safetensors and JSON, written whole, verified when read, never a pickle."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from polarbear.runs import RunError, plain, write_json, write_whole

log = logging.getLogger("polarbear")

KEPT = 2  # the newest may be damaged; the one before is then gone on from


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name and the plain facts that go with them."""

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]


def save(folder: Path, number: int, checkpoint: Checkpoint) -> None:
    """Write checkpoint ``number``; older ones beyond the last two are removed.

    The JSON file comes last and names the tensors' checksum: without it there is no checkpoint.
    """
    content = safetensors.torch.save({k: t.contiguous() for k, t in checkpoint.tensors.items()})
    stem = f"{number:08d}"
    write_whole(folder / f"{stem}.safetensors", lambda file: file.write(content))
    facts = {"sha256": hashlib.sha256(content).hexdigest(), "facts": plain(checkpoint.facts)}
    write_json(folder / f"{stem}.json", facts)
    kept = {file.stem for file in sorted(folder.glob("[0-9]*.json"))[-KEPT:]}
    for file in folder.iterdir():
        # Older ones, and what a killed process left half written.
        if file.stem not in kept:
            file.unlink()


def load_newest(folder: Path) -> tuple[int, Checkpoint] | None:
    """Give the newest whole checkpoint and its number; a damaged one is passed over, and said."""
    damaged: list[str] = []
    for file in sorted(folder.glob("[0-9]*.json"), reverse=True):
        checkpoint = _read(file)
        if checkpoint is not None:
            return int(file.stem), checkpoint
        log.warning("checkpoint %s is damaged; the one before is used", file)
        damaged.append(file.name)
    if damaged:
        raise RunError(
            f"every checkpoint in {folder} is damaged ({', '.join(damaged)}): start a new run"
        )
    return None


def _read(file: Path) -> Checkpoint | None:
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        content = file.with_suffix(".safetensors").read_bytes()
        if hashlib.sha256(content).hexdigest() != facts["sha256"]:
            return None
        return Checkpoint(safetensors.torch.load(content), facts["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
