"""An epoch of batches through each adapter, and the same by the library's own means.

A case makes its data ready and gives the function to be timed, which returns how many images it
has given.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

import polarbear

SIZE = 128
Epoch = Callable[[], int]


@dataclass(frozen=True)
class Data:
    """CIFAR-100 both ways."""

    stream: polarbear.Stream
    images: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, root: str) -> "Data":
        stream = polarbear.load("iirc-cifar", 0, root)
        return cls(stream, stream.images("train")[:], stream.train_leaf.astype(np.int64))

    @property
    def views(self) -> list[polarbear.View]:
        return [task.train for task in self.stream]


def first(pairs: Iterable[Any], key: Any = 0) -> int:
    return sum(len(batch[key]) for batch in pairs)


def waited(pairs: Iterable[Any]) -> int:
    """Count images that JAX may still be working on, and wait for the last."""
    images = 0
    for batch in pairs:
        images += len(batch[0])
    batch[0].block_until_ready()
    return images


def tensors(data: Data) -> Any:
    import torch
    from torch.utils.data import TensorDataset

    images = torch.from_numpy(data.images).permute(0, 3, 1, 2).contiguous()
    return TensorDataset(images, torch.from_numpy(data.labels))


def torch_own(data: Data) -> Epoch:
    from torch.utils.data import DataLoader

    whole = tensors(data)
    return lambda: first(DataLoader(whole, SIZE, shuffle=True))


def torch_ours(data: Data) -> Epoch:
    from polarbear.adapters.pytorch import ViewDataset, loader

    sets = [ViewDataset(data.stream, view) for view in data.views]
    return lambda: sum(first(loader(one, SIZE, shuffle=True)) for one in sets)


def torch_plain(data: Data) -> Epoch:
    from torch.utils.data import DataLoader

    from polarbear.adapters.pytorch import ViewDataset

    sets = [ViewDataset(data.stream, view) for view in data.views]
    return lambda: sum(first(DataLoader(one, SIZE, shuffle=True)) for one in sets)


def tf_own(data: Data) -> Epoch:
    import tensorflow as tf

    whole = tf.data.Dataset.from_tensor_slices((data.images, data.labels))
    batches = whole.shuffle(len(data.images)).batch(SIZE).prefetch(tf.data.AUTOTUNE)
    return lambda: first(batches)


def tf_ours(data: Data) -> Epoch:
    from polarbear.adapters.tf_data import dataset

    sets = [dataset(data.stream, view, SIZE, seed=0) for view in data.views]
    return lambda: sum(first(one) for one in sets)


def numpy_batches(data: Data) -> Iterable[Any]:
    import jax.numpy as jnp

    order = np.random.default_rng().permutation(len(data.images))
    for start in range(0, len(order), SIZE):
        chosen = order[start : start + SIZE]
        yield jnp.asarray(data.images[chosen]), jnp.asarray(data.labels[chosen])


def jax_own(data: Data) -> Epoch:
    return lambda: waited(numpy_batches(data))


def jax_on_device(data: Data) -> Epoch:
    import jax
    import jax.numpy as jnp

    images, labels = jnp.asarray(data.images), jnp.asarray(data.labels)
    take = jax.jit(lambda x, y, chosen: (x[chosen], y[chosen]))

    def once() -> int:
        order = np.random.default_rng().permutation(len(data.images))
        steps = range(0, len(order), SIZE)
        return waited(take(images, labels, order[start : start + SIZE]) for start in steps)

    return once


def jax_ours(data: Data) -> Epoch:
    from polarbear.adapters.jax_arrays import Batches

    sets = [Batches(data.stream, view, SIZE) for view in data.views]
    return lambda: waited(batch for one in sets for batch in one.epoch(seed=0))


@dataclass(frozen=True)
class Arrays:
    """A source as one writes it for arrays."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.images[index], "label": self.labels[index]}


def grain_own(data: Data) -> Epoch:
    import grain

    batches = grain.MapDataset.source(Arrays(data.images, data.labels)).shuffle(seed=0).batch(SIZE)
    return lambda: first(batches, "image")


def grain_own_tasks(data: Data) -> Epoch:
    """A set a task, as ours: each starts threads of its own."""
    import grain

    sources = [Arrays(data.images[view.rows], data.labels[view.rows]) for view in data.views]
    sets = [grain.MapDataset.source(one).shuffle(seed=0).batch(SIZE) for one in sources]
    return lambda: sum(first(one, "image") for one in sets)


def grain_ours(data: Data) -> Epoch:
    from polarbear.adapters.grain_source import ViewSource, batches

    sources = [ViewSource(data.stream, view) for view in data.views]
    return lambda: sum(first(batches(one, SIZE, seed=0), "image") for one in sources)


def grain_plain(data: Data) -> Epoch:
    from polarbear.adapters.grain_source import ViewSource

    sets = [ViewSource(data.stream, view).shuffle(seed=0).batch(SIZE) for view in data.views]
    return lambda: sum(first(one, "image") for one in sets)


def hub_own(data: Data) -> Epoch:
    """As the hub has CIFAR-100: PNG files inside."""
    import datasets
    from PIL import Image

    part = 10_000  # decoding is slow, and every image takes as long
    features = datasets.Features({"img": datasets.Image(), "fine": datasets.Value("int64")})
    images = [Image.fromarray(image) for image in data.images[:part]]
    made = datasets.Dataset.from_dict(
        {"img": images, "fine": data.labels[:part]}, features=features
    )
    mixed = made.shuffle(seed=0).with_format("numpy")
    return lambda: first(mixed.iter(SIZE), "img")


def hub_arrays(data: Data) -> Epoch:
    import datasets

    features = datasets.Features(
        {"img": datasets.Array3D((32, 32, 3), "uint8"), "fine": datasets.Value("int64")}
    )
    columns = {"img": list(data.images), "fine": data.labels}
    # In order, since shuffled it reads image by image, 20 times as slow.
    made = datasets.Dataset.from_dict(columns, features=features).with_format("numpy")
    return lambda: first(made.iter(SIZE), "img")


def hub_ours(data: Data) -> Epoch:
    from polarbear.adapters.hugging_face import dataset

    sets = [dataset(data.stream, view).shuffle(seed=0) for view in data.views]
    return lambda: sum(first(one.iter(SIZE), "image") for one in sets)


def hub_embedded(data: Data) -> Epoch:
    from polarbear.adapters.hugging_face import embedded

    sets = [embedded(data.stream, view).shuffle(seed=0).with_format("numpy") for view in data.views]
    return lambda: sum(first(one.iter(SIZE), "image") for one in sets)


def avalanche_own(data: Data) -> Epoch:
    from avalanche.benchmarks.utils import AvalancheDataset
    from avalanche.benchmarks.utils.data_loader import SingleDatasetDataLoader

    whole = AvalancheDataset([tensors(data)])
    return lambda: first(SingleDatasetDataLoader(whole, batch_size=SIZE, shuffle=True))


def avalanche_ours(data: Data) -> Epoch:
    from avalanche.benchmarks.utils.data_loader import SingleDatasetDataLoader

    from polarbear.adapters.avalanche import benchmark

    sets = [experience.dataset for experience in benchmark(data.stream).train_stream]
    return lambda: sum(
        first(SingleDatasetDataLoader(one, batch_size=SIZE, shuffle=True)) for one in sets
    )


def avalanche_evaluated(one: Any) -> int:
    """Go through a data set as Avalanche's strategies do to evaluate."""
    from torch.utils.data import DataLoader

    return first(DataLoader(one, SIZE, collate_fn=one.collate_fn))


def avalanche_eval_own(data: Data) -> Epoch:
    from avalanche.benchmarks.utils import AvalancheDataset

    whole = AvalancheDataset([tensors(data)])
    return lambda: avalanche_evaluated(whole)


def avalanche_eval_ours(data: Data) -> Epoch:
    from polarbear.adapters.avalanche import benchmark

    sets = [experience.dataset for experience in benchmark(data.stream).train_stream]
    return lambda: sum(avalanche_evaluated(one) for one in sets)


def continuum_own(data: Data) -> Epoch:
    from continuum import ClassIncremental
    from continuum.datasets import InMemoryDataset
    from torch.utils.data import DataLoader

    labels = np.unique(data.labels, return_inverse=True)[1]
    scenario = ClassIncremental(InMemoryDataset(data.images, labels), increment=5)
    sets = list(scenario)
    return lambda: sum(first(DataLoader(one, SIZE, shuffle=True)) for one in sets)


def continuum_ours(data: Data) -> Epoch:
    from torch.utils.data import DataLoader

    from polarbear.adapters.continuum import StreamScenario

    sets = list(StreamScenario(data.stream))
    return lambda: sum(first(DataLoader(one, SIZE, shuffle=True)) for one in sets)


def authors_epoch(data: Data, root: str) -> Epoch:
    """The authors' Dataset for PyTorch, as tensors without augmentation."""
    authors = import_module("authors")
    splits, tasks, columns = authors.load(
        "iirc_cifar100", root, essential_transforms_fn=authors.to_tensor
    )
    train = splits["train"]

    def once() -> int:
        train.reset()
        images = 0
        for task in range(len(tasks)):
            train.choose_task(task)
            for x, *names in authors.loader(train, shuffle=True):
                authors.vectors(list(zip(*names, strict=True)), columns, len(train.seen_classes))
                images += len(x)
        return images

    return once


#: Library, our way, its own way, and the two.
CASES: tuple[tuple[str, str, str, Callable[[Data], Epoch], Callable[[Data], Epoch]], ...] = (
    ("torch", "`loader(ViewDataset)`", "TensorDataset, DataLoader", torch_ours, torch_own),
    ("torch", "ViewDataset, DataLoader", "TensorDataset, DataLoader", torch_plain, torch_own),
    ("tensorflow", "`tf_data.dataset`", "from_tensor_slices, shuffle, batch", tf_ours, tf_own),
    ("jax", "`jax_arrays.Batches`", "NumPy batches, jnp.asarray", jax_ours, jax_own),
    ("jax", "`jax_arrays.Batches`", "on the device, jitted index", jax_ours, jax_on_device),
    ("grain", "`grain_source.batches`", "source, shuffle, batch", grain_ours, grain_own),
    ("grain", "ViewSource, shuffle, batch", "the same, per task", grain_plain, grain_own_tasks),
    ("datasets", "`hugging_face.dataset`", "Array3D, NumPy format, in order", hub_ours, hub_arrays),
    ("datasets", "`hugging_face.embedded`", "Image (PNG), NumPy format", hub_embedded, hub_own),
    (
        "avalanche",
        "`avalanche.benchmark`",
        "AvalancheDataset of tensors",
        avalanche_ours,
        avalanche_own,
    ),
    (
        "avalanche",
        "the same, in order, as to evaluate",
        "the same, in order",
        avalanche_eval_ours,
        avalanche_eval_own,
    ),
    (
        "continuum",
        "`continuum.StreamScenario`",
        "InMemoryDataset, ClassIncremental",
        continuum_ours,
        continuum_own,
    ),
)
