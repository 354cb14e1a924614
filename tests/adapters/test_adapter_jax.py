"""JAX arrays and batches, and the Grain source: shuffling by key, shapes, Grain's own tools."""

import pickle
from itertools import pairwise

import numpy as np
import pytest

from polarbear import Stream


def flat(images: object) -> np.ndarray:
    return np.asarray(images).reshape(len(images), -1)


def epoch_of_jax(stream: Stream, seed: int | None, epoch: int) -> np.ndarray:
    from polarbear.adapters.jax_arrays import Batches

    batches = Batches(stream, stream[1].train, 100)
    return np.concatenate([flat(images) for images, _ in batches.epoch(seed, epoch)])


def epoch_of_grain(stream: Stream, seed: int | None, epoch: int) -> np.ndarray:
    from polarbear.adapters.grain_source import ViewSource, batches

    data = batches(ViewSource(stream, stream[1].train), 100, seed=seed, epoch=epoch)
    return np.concatenate([flat(batch["image"]) for batch in data])


@pytest.mark.parametrize(("name", "epoch_of"), [("jax", epoch_of_jax), ("grain", epoch_of_grain)])
def test_seed_and_epoch_decide_the_order(library, stream, name, epoch_of) -> None:
    library(name)
    orders = [epoch_of(stream, None, 0), *(epoch_of(stream, 0, e) for e in range(3))]
    orders.append(epoch_of(stream, 1, 0))
    assert np.array_equal(orders[1], epoch_of(stream, 0, 0))
    assert all(not np.array_equal(a, b) for a, b in pairwise(orders))
    everything = np.unique(orders[0], axis=0)
    assert all(np.array_equal(np.unique(order, axis=0), everything) for order in orders)


def test_the_last_batch_can_be_left_out(library, stream) -> None:
    library("jax")
    from polarbear.adapters.jax_arrays import Batches

    kept = Batches(stream, stream[0].train, 300)
    dropped = Batches(stream, stream[0].train, 300, drop_last=True)
    assert [len(x) for x, _ in kept.epoch()] == [300, 300, 40]
    assert [len(x) for x, _ in dropped.epoch()] == [300, 300]
    assert (len(kept), len(dropped)) == (3, 2)


def test_arrays_are_jaxs_and_work_inside_jit(library, stream) -> None:
    jax = library("jax")
    from polarbear.adapters.jax_arrays import arrays

    images, labels = arrays(stream, stream[0].train)
    assert isinstance(images, jax.Array)
    assert (images.dtype, labels.dtype) == (np.uint8, np.float32)
    taken = jax.jit(lambda x, rows: x[rows])(labels, np.array([3, 1]))
    assert np.array_equal(taken, stream[0].train.targets[[3, 1]])


def test_the_source_is_a_data_set_of_grains(library, stream) -> None:
    grain = library("grain")
    from polarbear.adapters.grain_source import ViewSource

    view = stream[1].train
    source = ViewSource(stream, view)
    assert isinstance(source, grain.MapDataset)
    assert np.array_equal(source[len(view) + 3]["image"], source[3]["image"])  # the next epoch
    assert [record["label"].argmax() for record in source[2:5]] == [
        *view.targets[2:5].argmax(axis=1)
    ]
    mixed = source.shuffle(seed=0).batch(100)
    assert [len(batch["image"]) for batch in mixed] == [100, 100, 100, 52]
    wrapped = grain.MapDataset.source(source).shuffle(seed=0).batch(100)
    for ours, grains in zip(mixed, wrapped, strict=True):
        assert np.array_equal(ours["image"], grains["image"])
        assert np.array_equal(ours["label"], grains["label"])


def test_the_source_can_go_to_another_process(library, stream) -> None:
    library("grain")
    from polarbear.adapters.grain_source import ViewSource

    source = ViewSource(stream, stream[1].train)
    back = pickle.loads(pickle.dumps(source))
    assert len(back) == len(source)
    assert np.array_equal(back[7]["image"], source[7]["image"])


def test_grains_own_loader_takes_the_source(library, stream) -> None:
    grain = library("grain")
    from polarbear.adapters.grain_source import ViewSource

    source = ViewSource(stream, stream[1].train)
    sampler = grain.samplers.IndexSampler(len(source), shuffle=True, seed=0, num_epochs=1)
    loader = grain.DataLoader(data_source=source, sampler=sampler)
    images = np.stack([record["image"] for record in loader])
    assert np.array_equal(
        np.unique(flat(images), axis=0),
        np.unique(flat(stream.images("train")[stream[1].train.rows]), axis=0),
    )
    assert repr(source) == "ViewSource(352 images, 11 classes)"


def test_grain_shuffles_shards_and_repeats_the_batches(library, stream) -> None:
    library("grain")
    from polarbear.adapters.grain_source import ViewSource, batches

    data = batches(ViewSource(stream, stream[1].train), 100, seed=0)
    assert [len(batch["label"]) for batch in data] == [100, 100, 100, 52]
    assert [len(batch["label"]) for batch in data[1::2]] == [100, 52]
    assert len(list(data.repeat(2))) == 8
