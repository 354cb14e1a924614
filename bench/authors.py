"""The cases with the authors' package ``iirc==1.0.1``, used as their training code uses it.

Its ready-made Dataset needs torchvision, which does not import beside a CPU build of torch; so the
package's own loading functions and base class are used, and the same image operations are written
out with Pillow and torch. A case prepares and gives the function to be timed, which returns how
much it has done.
"""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from iirc import datasets_loader
from iirc.lifelong_dataset.base_dataset import BaseDataset

from workload import Workload

MEAN, STD = (0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023)
WORKERS = 2


class Samples(BaseDataset):
    """What the package's Dataset for PyTorch does, less torchvision."""

    def __getitem__(self, index: int) -> Any:
        image, label_1, label_2 = self.get_item(index)
        augmented = self._apply_augmentations
        transform = self.augmentation_transforms_fn if augmented else self.essential_transforms_fn
        return transform(image), label_1, label_2


def lifelong_datasets(
    name: str, data: dict[str, list[Any]], configuration: dict[str, Any], **more: Any
) -> Any:
    """The package's four splits, its tasks and its class numbers, for class order 0."""
    tasks, number = datasets_loader._get_tasks_configuration(name, 0)
    shares = ("superclass_data_pct", "subclass_data_pct", "superclass_sampling_size_cap")
    made = {
        split: Samples(
            samples,
            tasks,
            setup="IIRC",
            using_image_path=configuration["using_image_path"],
            test_mode=split in ("posttask_valid", "test"),
            **{share: configuration[share] for share in shares},
            **more,
        )
        for split, samples in data.items()
    }
    return made, tasks, number


def load(name: str, root: str, **more: Any) -> Any:
    """What ``get_lifelong_datasets`` does."""
    data, configuration = datasets_loader._get_dataset(name, root)
    return lifelong_datasets(name, data, configuration, **more)


def count_rows(splits: Any, tasks: Any) -> int:
    """The rows of every task, training and in-task validation."""
    return sum(
        len(splits[split].task_id_to_data_idx[task])
        for split in ("train", "intask_valid")
        for task in range(len(tasks))
    )


def cifar(work: Workload) -> Callable[[], int]:
    """The data sets from official files, which it does not check."""

    def ready() -> int:
        splits, tasks, _ = load("iirc_cifar100", work.cifar_root)
        return count_rows(splits, tasks)

    return ready


def imagenet(work: Workload) -> Callable[[], int]:
    """The data sets from a list of files, given to it in place of a file system's."""
    listing = work.imagenet_listing()

    def listdir(path: str) -> list[str]:
        *_, parent, name = Path(path).parts
        return list(listing[name] if name in listing else listing[parent][name])

    def ready() -> int:
        with mock.patch.object(os, "listdir", listdir):
            splits, tasks, _ = load("iirc_imagenet_full", "made-up")
        return count_rows(splits, tasks)

    return ready


def vectors(pairs: Any, columns: dict[str, int], seen: int) -> np.ndarray:
    """Label names of a batch as a matrix: (n, seen)."""
    matrix = np.zeros((len(pairs), seen), dtype=bool)
    for i, names in enumerate(pairs):
        for name in names:
            if name != "None":
                matrix[i, columns[name]] = True
    return matrix


def labels(work: Workload) -> Callable[[], int]:
    """Label matrices of all training sets."""
    splits, tasks, columns = load("iirc_cifar100", work.cifar_root)
    train = splits["train"]

    def matrices() -> int:
        train.reset()
        ones = 0
        for j in range(len(tasks)):
            train.choose_task(j)
            pairs = [train.get_labels(i) for i in range(len(train))]
            ones += np.count_nonzero(vectors(pairs, columns, len(train.seen_classes)))
        return ones

    return matrices


def to_tensor(image: Any) -> Any:
    """Pixels in 0..1 by channel, normalised, as torchvision's ToTensor and Normalize."""
    import torch

    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    return tensor.sub_(mean[:, None, None]).div_(std[:, None, None])


def augment(image: Any) -> Any:
    """Pad 4, crop 32 at random, mirror every other image, normalise."""
    from PIL import Image, ImageOps

    padded = ImageOps.expand(image, border=4, fill=0)
    x, y = random.randint(0, 8), random.randint(0, 8)
    cropped = padded.crop((x, y, x + 32, y + 32))
    if random.random() < 0.5:
        cropped = cropped.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return to_tensor(cropped)


def loader(samples: Samples, shuffle: bool) -> Iterator[Any]:
    """Batches of 128 by two worker processes."""
    from torch.utils.data import DataLoader

    return iter(DataLoader(samples, batch_size=128, shuffle=shuffle, num_workers=WORKERS))


def epoch(work: Workload) -> Callable[[], int]:
    """Augmented batches of all training sets, once through."""
    splits, tasks, columns = load(
        "iirc_cifar100",
        work.cifar_root,
        essential_transforms_fn=to_tensor,
        augmentation_transforms_fn=augment,
    )
    train = splits["train"]

    def once() -> int:
        train.reset()
        images = 0
        for j in range(len(tasks)):
            train.choose_task(j)
            for x, *names in loader(train, shuffle=True):
                vectors(list(zip(*names, strict=True)), columns, len(train.seen_classes))
                images += len(x)
        return images

    return once


def evaluation(work: Workload) -> Callable[[], int]:
    """After each task the images of all seen tasks together, and of each of them."""
    splits, _, columns = load("iirc_cifar100", work.cifar_root, essential_transforms_fn=to_tensor)
    test = splits["test"]

    def go_through() -> int:
        ones = 0
        for _, *names in loader(test, shuffle=False):
            pairs = list(zip(*names, strict=True))
            ones += np.count_nonzero(vectors(pairs, columns, len(test.seen_classes)))
        return ones

    def all_tasks() -> int:
        labels = 0
        test.reset()
        for j in range(work.evaluated_tasks):
            test.load_tasks_up_to(j)
            labels += go_through()
            for k in range(j + 1):
                test.choose_task(k)
                go_through()
        return labels

    return all_tasks


CASES = {
    "cifar": cifar,
    "imagenet": imagenet,
    "labels": labels,
    "epoch": epoch,
    "evaluation": evaluation,
}
