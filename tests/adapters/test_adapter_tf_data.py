"""The tf.data pipeline: shuffling, shapes."""

import numpy as np
import pytest


@pytest.fixture
def tf(library):
    return library("tensorflow")


@pytest.mark.parametrize("stored", ["array", "decoded"])
def test_a_seed_shuffles_anew_each_time_and_gives_every_image_once(
    tf, shapes_stream, stored
) -> None:
    from polarbear.adapters.tf_data import dataset

    stream = shapes_stream(0, stored)
    view = stream[1].train
    data = dataset(stream, view, 100, seed=3)

    def epoch() -> np.ndarray:
        return np.concatenate([images.numpy().reshape(len(images), -1) for images, _ in data])

    first, second = epoch(), epoch()
    rows = stream.images("train")[view.rows].reshape(len(view), -1)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, rows)
    assert np.array_equal(np.unique(first, axis=0), np.unique(rows, axis=0))
    place = {row.tobytes(): number for number, row in enumerate(rows)}
    moved = [abs(place[row.tobytes()] - number) for number, row in enumerate(first)]
    assert np.mean(moved) > len(view) / 5  # over the whole view: a third on average
    again = dataset(stream, view, 100, seed=3)
    assert np.array_equal(next(iter(again))[0].numpy().reshape(100, -1), first[:100])


@pytest.mark.parametrize("stored", ["array", "decoded"])
def test_shapes_are_known_before_the_first_batch(tf, shapes_stream, stored) -> None:
    from polarbear.adapters.tf_data import dataset

    stream = shapes_stream(0, stored)
    images, labels = dataset(stream, stream[1].train, 100).element_spec
    assert images.shape[-1] == 3
    assert images.dtype == tf.uint8
    assert labels.shape.as_list() == [None, 11]
    assert labels.dtype == tf.float32


def test_autotuning_is_off_and_can_be_turned_on(tf, stream) -> None:
    from polarbear.adapters.tf_data import dataset

    data = dataset(stream, stream[0].train)
    assert data.options().autotune.enabled is False
    options = tf.data.Options()
    options.autotune.enabled = True
    assert data.with_options(options).options().autotune.enabled is True
