"""The same order gives the same rows and labels through every adapter."""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from polarbear import Stream, View

Arrays = tuple[np.ndarray, np.ndarray]


def view_of(stream: Stream, split: str, task: int) -> View:
    return stream.test(after=task) if split == "test" else getattr(stream[task], split)


def joined(pairs: Iterable[tuple[Any, Any]]) -> Arrays:
    images, labels = zip(*((np.asarray(x), np.asarray(y)) for x, y in pairs), strict=True)
    return np.concatenate(images), np.concatenate(labels)


def channels_last(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 2, 3, 1)


def through_pytorch(stream: Stream, split: str, task: int) -> Arrays:
    from polarbear.adapters.pytorch import ViewDataset, loader

    images, labels = joined(loader(ViewDataset(stream, view_of(stream, split, task)), 50))
    return channels_last(images), labels


def through_plain_dataloader(stream: Stream, split: str, task: int) -> Arrays:
    from torch.utils.data import DataLoader

    from polarbear.adapters.pytorch import ViewDataset

    images, labels = joined(DataLoader(ViewDataset(stream, view_of(stream, split, task)), 50))
    return channels_last(images), labels


def through_pytorch_one_by_one(stream: Stream, split: str, task: int) -> Arrays:
    from polarbear.adapters.pytorch import ViewDataset

    dataset = ViewDataset(stream, view_of(stream, split, task))
    images, labels = joined(
        (x[None], y[None]) for x, y in (dataset[i] for i in range(len(dataset)))
    )
    return channels_last(images), labels


def through_tf_data(stream: Stream, split: str, task: int) -> Arrays:
    from polarbear.adapters.tf_data import dataset

    return joined(dataset(stream, view_of(stream, split, task), 50))


def through_jax_arrays(stream: Stream, split: str, task: int) -> Arrays:
    from polarbear.adapters.jax_arrays import arrays

    return joined([arrays(stream, view_of(stream, split, task))])


def through_jax_batches(stream: Stream, split: str, task: int) -> Arrays:
    from polarbear.adapters.jax_arrays import Batches

    return joined(Batches(stream, view_of(stream, split, task), 50).epoch())


def through_grain(stream: Stream, split: str, task: int) -> Arrays:
    import grain

    from polarbear.adapters.grain_source import ViewSource

    data = grain.MapDataset.source(ViewSource(stream, view_of(stream, split, task))).batch(50)
    return joined((batch["image"], batch["label"]) for batch in data)


def through_grain_batches(stream: Stream, split: str, task: int) -> Arrays:
    from polarbear.adapters.grain_source import ViewSource, batches

    data = batches(ViewSource(stream, view_of(stream, split, task)), 50)
    return joined((batch["image"], batch["label"]) for batch in data)


def through_hugging_face(stream: Stream, split: str, task: int) -> Arrays:
    from polarbear.adapters.hugging_face import dataset

    data = dataset(stream, view_of(stream, split, task))
    return joined((batch["image"], batch["label"]) for batch in data.iter(50))


def through_hugging_face_embedded(stream: Stream, split: str, task: int) -> Arrays:
    from polarbear.adapters.hugging_face import embedded

    view = view_of(stream, split, task)
    data = embedded(stream, view)
    labels = np.zeros((len(view), len(view.classes)))
    for row, named in enumerate(data["labels"]):
        labels[row, named] = 1
    assert np.array_equal(data["row"], view.rows)
    return np.stack([np.asarray(image) for image in data["image"]]), labels


def through_avalanche(stream: Stream, split: str, task: int) -> Arrays:
    from avalanche.benchmarks.utils.data_loader import SingleDatasetDataLoader

    from polarbear.adapters.avalanche import benchmark

    dataset = benchmark(stream).streams[split][task].dataset
    images, labels = joined(SingleDatasetDataLoader(dataset, batch_size=50, shuffle=False))
    return channels_last(images), labels


def through_continuum(stream: Stream, split: str, task: int) -> Arrays:
    from torch.utils.data import DataLoader

    from polarbear.adapters.continuum import StreamScenario

    task_set = StreamScenario(stream, split)[task]
    images, labels = joined((x, y) for x, y, _ in DataLoader(task_set, 50))
    return channels_last(images) * 255, labels


ADAPTERS: dict[str, tuple[str, Callable[[Stream, str, int], Arrays]]] = {
    "pytorch": ("torch", through_pytorch),
    "pytorch, plain DataLoader": ("torch", through_plain_dataloader),
    "pytorch, one by one": ("torch", through_pytorch_one_by_one),
    "tf.data": ("tensorflow", through_tf_data),
    "jax, whole": ("jax", through_jax_arrays),
    "jax, batches": ("jax", through_jax_batches),
    "grain, image by image": ("grain", through_grain),
    "grain, batches": ("grain", through_grain_batches),
    "hugging face": ("datasets", through_hugging_face),
    "hugging face, embedded": ("datasets", through_hugging_face_embedded),
    "avalanche": ("avalanche", through_avalanche),
    "continuum": ("continuum", through_continuum),
}


def test_an_image_tells_its_row(stream: Stream) -> None:
    for file in ("train", "test"):
        images = stream.images(file)[:]
        assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)


@pytest.mark.parametrize(
    ("order", "task", "stored"),
    [(0, 0, "array"), (1, 2, "array"), (0, 2, "decoded"), (0, 2, "mapped")],
)
@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_gives_the_streams_rows_and_labels(
    library: Callable[[str], ModuleType],
    shapes_stream: Callable[[int, str], Stream],
    name: str,
    split: str,
    order: int,
    task: int,
    stored: str,
) -> None:
    module, through = ADAPTERS[name]
    library(module)
    stream = shapes_stream(order, stored)
    view = view_of(stream, split, task)
    images, labels = through(stream, split, task)
    seen = len(view.classes)
    assert np.array_equal(np.round(images), stream.images(view.file)[view.rows])
    assert np.array_equal(labels[:, :seen], view.targets)
    assert not labels[:, seen:].any()  # nothing of the classes still to come
