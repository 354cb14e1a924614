"""The Avalanche benchmark: its streams, transforms, and replay over tasks of different sizes."""

import numpy as np
import pytest

from polarbear import Stream


@pytest.fixture
def benchmark(library):
    library("avalanche")
    from polarbear.adapters.avalanche import benchmark

    return benchmark


def test_there_is_an_experience_a_task_in_every_stream(benchmark, stream: Stream) -> None:
    made = benchmark(stream)
    assert {name: len(part) for name, part in made.streams.items()} == {
        "train": 7,
        "valid": 7,
        "test": 7,
    }
    for task in stream:
        assert len(made.train_stream[task.index].dataset) == len(task.train)
        assert len(made.test_stream[task.index].dataset) == len(stream.test(after=task.index))


def test_transforms_go_by_training_and_evaluation(benchmark, stream: Stream) -> None:
    made = benchmark(
        stream,
        transform=lambda image: image.float() + 1000,
        eval_transform=lambda image: image.float() + 2000,
    )
    train, test = made.train_stream[0].dataset, made.test_stream[0].dataset
    assert train[0][0].min() >= 1000
    assert train[0][0].max() <= 1255
    assert test[0][0].min() >= 2000
    assert train.eval()[0][0].min() >= 2000
    assert np.array_equal(train[0][1][:6], stream[0].train.targets[0])


def test_one_transform_alone_leaves_the_other_images_as_they_are(benchmark, stream: Stream) -> None:
    made = benchmark(stream, transform=lambda image: image.float() + 1000)
    assert made.train_stream[1].dataset[0][0].min() >= 1000
    assert made.test_stream[1].dataset[0][0].max() <= 255


def added(image):
    return image.float() + 1000


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made,
        lambda made: made.subset([5, 3, 8, 1, 200]),
        lambda made: made.subset(range(50, 60)).subset([9, 4, 2, 0, 1]),
        lambda made: made.subset([7, 2]).concat(made.subset([0, 6, 3])),
        lambda made: made.subset([7, 2, 1, 4, 4]).eval(),
        lambda made: made.replace_current_transform_group((added, None)),
        lambda made: made.replace_current_transform_group((added, None)).freeze_transforms(),
        lambda made: made.update_data_attribute("number", numbers(made)),
    ],
)
def test_reading_at_once_is_reading_one_by_one(benchmark, stream: Stream, change) -> None:
    dataset = change(benchmark(stream).train_stream[1].dataset)
    places = [4, 0, 1]
    for found, place in zip(dataset.__getitems__(places), places, strict=True):
        assert len(found) == len(dataset[place])
        assert all(np.array_equal(a, b) for a, b in zip(found, dataset[place], strict=True))


def numbers(dataset):
    from avalanche.benchmarks.utils.data_attribute import DataAttribute

    return DataAttribute(list(range(len(dataset))), "number", use_in_getitem=True)


def test_a_plain_loader_reads_a_view_at_once(benchmark, stream: Stream, monkeypatch) -> None:
    """As Avalanche's strategies evaluate."""
    from torch.utils.data import DataLoader

    from polarbear.adapters.pytorch import ViewDataset

    def refuse(*_):
        raise AssertionError("an image was read by itself")

    dataset = benchmark(stream).test_stream[1].dataset.eval()
    monkeypatch.setattr(ViewDataset, "__getitem__", refuse)
    (images, _), *_ = DataLoader(dataset, batch_size=20, collate_fn=dataset.collate_fn)
    assert len(images) == 20


def test_avalanches_memory_mixes_tasks(benchmark, stream: Stream) -> None:
    from avalanche.benchmarks.utils.data_loader import ReplayDataLoader
    from avalanche.training.storage_policy import ReservoirSamplingBuffer

    made = benchmark(stream)
    buffer = ReservoirSamplingBuffer(max_size=40)
    buffer.update_from_dataset(made.train_stream[0].dataset)
    loader = ReplayDataLoader(
        made.train_stream[1].dataset, buffer.buffer, batch_size=20, batch_size_mem=10, shuffle=True
    )
    images, targets = next(iter(loader))
    assert images.shape == (30, 3, 32, 32)
    assert targets.shape == (30, 36)
    old, new = targets[:, :6].any(dim=1), targets[:, 6:11].any(dim=1)
    assert (int(old.sum()), int(new.sum())) == (10, 20)
