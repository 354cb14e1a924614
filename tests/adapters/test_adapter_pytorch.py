"""The PyTorch data set and loader: transforms, batches, workers."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from polarbear import Stream
from polarbear.adapters.pytorch import ViewDataset, loader


def brightness(image: Tensor) -> Tensor:
    """A callable as torchvision's v2 transforms are: tensor in, tensor out."""
    assert image.dtype == torch.uint8
    assert image.shape == (3, 32, 32)
    return image.float().div(255)


def from_pillow(image: Image.Image) -> Tensor:
    """A callable as torchvision's ToTensor is: Pillow image in, float tensor out."""
    assert image.mode == "RGB"
    assert image.size == (32, 32)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)


@pytest.mark.parametrize("stored", ["array", "decoded"])
@pytest.mark.parametrize(("transform", "pil"), [(brightness, False), (from_pillow, True)])
def test_a_transform_is_called_on_each_image(shapes_stream, transform, pil, stored) -> None:
    stream = shapes_stream(0, stored)
    view = stream[1].train
    dataset = ViewDataset(stream, view, transform, pil=pil)
    expected = torch.from_numpy(stream.images("train")[view.rows]).permute(0, 3, 1, 2) / 255
    assert torch.equal(dataset[5][0], expected[5])
    assert torch.equal(dataset[[5, 0, 7]][0], expected[[5, 0, 7]])
    batches = [images for images, _ in DataLoader(dataset, batch_size=100)]
    assert torch.equal(torch.cat(batches), expected)


def test_a_pillow_image_without_a_transform_comes_as_it_is(stream: Stream) -> None:
    image, _ = ViewDataset(stream, stream[0].train, pil=True)[3]
    assert np.array_equal(np.asarray(image), stream.images("train")[stream[0].train.rows[3]])


def test_a_target_transform_is_called_on_each_target(stream: Stream) -> None:
    view = stream[1].train
    dataset = ViewDataset(stream, view, target_transform=lambda target: target.argmax())
    first = view.targets.argmax(axis=1)
    assert int(dataset[4][1]) == first[4]
    assert dataset[[4, 2]][1].tolist() == first[[4, 2]].tolist()
    (_, targets), *_ = DataLoader(dataset, batch_size=8)
    assert targets.tolist() == first[:8].tolist()


def test_targets_can_have_a_column_for_every_class(stream: Stream) -> None:
    view = stream[1].train
    targets = ViewDataset(stream, view, width=len(stream.classes)).targets
    assert targets.shape == (len(view), 36)
    assert np.array_equal(targets[:, :11], view.targets)
    assert not targets[:, 11:].any()


def numbered(stream: Stream) -> ViewDataset:
    """A data set whose targets are the places of its images."""
    dataset = ViewDataset(stream, stream[0].train)
    dataset._tensors = (dataset._tensors[0], torch.arange(len(dataset))[:, None])
    return dataset


def test_a_loader_shuffles_by_its_generator_and_gives_every_image_once(stream: Stream) -> None:
    dataset = numbered(stream)

    def epoch(seed: int) -> list[int]:
        batches = loader(dataset, 100, shuffle=True, generator=torch.Generator().manual_seed(seed))
        return [int(place) for _, places in batches for place in places]

    assert sorted(epoch(0)) == list(range(640))
    assert epoch(0) == epoch(0)
    assert epoch(0) != epoch(1)
    assert epoch(0) != list(range(640))


def test_a_loader_keeps_or_drops_the_last_batch(stream: Stream) -> None:
    dataset = ViewDataset(stream, stream[0].train)
    sizes = [len(images) for images, _ in loader(dataset, 300)]
    dropped = [len(images) for images, _ in loader(dataset, 300, drop_last=True)]
    assert sizes == [300, 300, 40]
    assert dropped == [300, 300]


def test_worker_processes_give_the_same(shapes_stream) -> None:
    stream = shapes_stream(0, "mapped")
    dataset = ViewDataset(stream, stream[1].train)
    there = loader(dataset, 128, num_workers=1, multiprocessing_context="spawn")
    for (x, y), (x_here, y_here) in zip(there, loader(dataset, 128), strict=True):
        assert torch.equal(x, x_here)
        assert torch.equal(y, y_here)


def test_a_sample_can_be_changed_without_changing_the_stream(stream: Stream) -> None:
    dataset = ViewDataset(stream, stream[0].train)
    before = stream.images("train")[stream[0].train.rows[0]].copy()
    dataset[0][0].zero_()
    assert np.array_equal(stream.images("train")[stream[0].train.rows[0]], before)
