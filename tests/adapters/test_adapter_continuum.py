"""The Continuum scenario: its task sets, transformations, and mixing of tasks."""

import numpy as np
import pytest

from polarbear import Stream
from polarbear.base.errors import UnknownNameError


@pytest.fixture
def scenario(library):
    library("continuum")
    from polarbear.adapters.continuum import StreamScenario

    return StreamScenario


def test_the_scenario_tells_tasks_classes_and_samples(scenario, stream: Stream) -> None:
    made = scenario(stream)
    assert (len(made), made.nb_tasks, made.nb_classes) == (7, 7, 36)
    assert made.classes == list(range(36))
    assert made.nb_samples == sum(len(task.train) for task in stream)
    assert made.train
    assert not scenario(stream, "test").train
    assert [len(part) for part in made] == [len(task.train) for task in stream]


def test_a_slice_joins_tasks_and_numbers_may_be_negative(scenario, stream: Stream) -> None:
    made = scenario(stream)
    joined = made[1:3]
    images, labels, tasks = joined.get_raw_samples()
    assert len(joined) == len(stream[1].train) + len(stream[2].train)
    assert np.bincount(tasks).tolist() == [0, len(stream[1].train), len(stream[2].train)]
    rows = np.concatenate([stream[1].train.rows, stream[2].train.rows])
    assert np.array_equal(images, stream.images("train")[rows])
    assert labels.shape == (len(joined), 36)
    assert len(made[-1]) == len(stream[6].train)
    with pytest.raises(IndexError):
        made[7]


def test_reading_at_once_is_reading_one_by_one(scenario, stream: Stream) -> None:
    task_set = scenario(stream)[1]
    for (x, y, t), place in zip(task_set.__getitems__([4, 0, 9]), [4, 0, 9], strict=True):
        one = task_set[place]
        assert np.array_equal(x, one[0])
        assert np.array_equal(y, one[1])
        assert t == one[2] == 1


def test_transformations_get_pillow_images(scenario, stream: Stream) -> None:
    from torch.utils.data import DataLoader
    from torchvision import transforms

    seen = []

    def note(image):
        seen.append((image.mode, image.size))
        return image

    made = scenario(stream, transformations=[note, transforms.ToTensor()])
    images, _, _ = next(iter(DataLoader(made[0], 8)))
    assert seen == [("RGB", (32, 32))] * 8
    plain, _, _ = next(iter(DataLoader(scenario(stream)[0], 8)))
    assert np.allclose(images, plain, atol=1e-7)


def test_samples_of_an_earlier_task_can_be_added(scenario, stream: Stream) -> None:
    made = scenario(stream)
    task_set = made[1]
    task_set.add_samples(*made[0].get_raw_samples(np.arange(10)))
    assert len(task_set) == len(stream[1].train) + 10
    _, labels, task = task_set[len(task_set) - 1]
    assert task == 0
    assert np.array_equal(labels[:6], stream[0].train.targets[9])


def test_a_wrong_split_is_refused(scenario, stream: Stream) -> None:
    with pytest.raises(UnknownNameError, match="unknown split 'tset': did you mean 'test'"):
        scenario(stream, "tset")
