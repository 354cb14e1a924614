"""The authors' package ``iirc==1.0.1`` as a source of truth: its rows and labels, framework-free.

Its data sets hold images or paths but no row numbers, so the made-up data carry them: in the
pixels (CIFAR) or in the file names (ImageNet).
"""

import contextlib
import io
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from iirc import datasets_loader
from iirc.lifelong_dataset.base_dataset import BaseDataset

SPLITS = ("train", "intask_valid", "posttask_valid", "test")
Labels = dict[int, frozenset[str]]


class Reference(BaseDataset):  # type: ignore[misc]
    """One split as the package serves it, read as row number → label names."""

    def __getitem__(self, index: int) -> Any:
        return self.get_item(index)

    def labels(self, row_of: Callable[[Any], int]) -> Labels:
        found = {}
        for i, sample in enumerate(self.cur_task_data_ids):
            names = frozenset(self.get_labels(i)) - {"None"}
            found[row_of(self.dataset[sample][0])] = names
        return found

    def one_task(self, task: int, row_of: Callable[[Any], int]) -> Labels:
        self.choose_task(task)
        return self.labels(row_of)

    def up_to(self, task: int, row_of: Callable[[Any], int]) -> Labels:
        self.load_tasks_up_to(task)
        return self.labels(row_of)


def splits(name: str, order: int, data: Mapping[str, list[Any]], joint: bool = False) -> Any:
    """The package's four splits and its class numbers for one class order."""
    tasks, number = datasets_loader._get_tasks_configuration(name, order, joint=joint)
    setup = "IIRC" if name.startswith("iirc") else "CIL"
    made = {
        split: Reference(
            data[split],
            tasks,
            setup=setup,
            test_mode=split in ("posttask_valid", "test"),
            superclass_data_pct=0.4,
            subclass_data_pct=0.8,
            superclass_sampling_size_cap=8,
        )
        for split in SPLITS
    }
    return made, tasks, number


def cifar_data(root: Path, train: Sequence[int], test: Sequence[int], names: Sequence[str]) -> Any:
    """Write official-looking files whose pixels are row numbers; load them as the package does."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for split, labels in (("train", train), ("test", test)):
        pixels = np.zeros((len(labels), 3072), np.uint8)
        pixels[:, :4] = np.arange(len(labels), dtype=np.uint32)[:, None].view(np.uint8)
        content = {b"data": pixels, b"fine_labels": list(map(int, labels))}
        (folder / split).write_bytes(pickle.dumps(content))
    meta = {b"fine_label_names": [name.encode() for name in names]}
    (folder / "meta").write_bytes(pickle.dumps(meta))
    with contextlib.redirect_stdout(io.StringIO()):
        return {
            "iirc_cifar100": datasets_loader._load_iirc_cifar100(str(root)),
            "incremental_cifar100": datasets_loader._load_incremental_cifar100(str(root)),
        }


def cifar_row(image: Any) -> int:
    pixels = np.ascontiguousarray(np.asarray(image)[0, :4, 0])
    return int(pixels.view(np.uint32)[0])


def imagenet_data(listing: Mapping[str, Mapping[str, Sequence[str]]]) -> Any:
    """Load made-up file lists (split → wnid → names) as the package does, without any file."""

    def listdir(path: str) -> list[str]:
        parts = Path(path).parts
        return list(listing[parts[-1]] if parts[-1] in listing else listing[parts[-2]][parts[-1]])

    with mock.patch.object(os, "listdir", listdir):
        return {
            "iirc": datasets_loader._load_iirc_imagenet("made-up"),
            "incremental": datasets_loader._load_incremental_imagenet("made-up"),
        }
