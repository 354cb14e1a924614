"""A step in shares: gradients, statistics and loss are those of one process."""

from pathlib import Path

import pytest
import torch

from gradients_in_shares import main
from polarbear.engine.world import World
from together import torchrun

STEPS = ((12, 8), (13, 7), (3, 9))
"""Images and memory images: in equal shares, in unequal ones, and too few to share."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("steps")
    script = Path(__file__).parents[1] / "gradients_in_shares.py"
    code, said = torchrun(3, str(script), str(found), *map(str, sum(STEPS, ())))
    assert code == 0, said
    return found


@pytest.mark.parametrize(("images", "beside"), STEPS)
def test_every_process_finds_what_one_would(images: int, beside: int, folder: Path) -> None:
    main(str(folder), images, beside)
    alone, *others = sorted(folder.glob(f"{images}-{beside}-of-*"))
    assert len(others) > 1
    expected = torch.load(alone)
    for file in others:
        for name, tensor in torch.load(file).items():
            exact = {"rtol": 1e-9, "atol": 1e-12} if name != "loss" else {"rtol": 1e-6, "atol": 0}
            torch.testing.assert_close(tensor, expected[name], **exact, msg=name)


def test_no_thread_that_speaks_to_others_is_left_when_python_ends(folder: Path) -> None:
    """One that lets go of a tensor then would abort the process, which has done all it should."""
    if not Path("/proc/self/task").exists():
        pytest.skip("only Linux tells the names of threads")
    found = [file.read_text() for file in folder.glob("threads-*.txt")]
    assert len(found) == 3
    assert "gloo" not in "".join(found)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("images", [1, 15, 16, 33])
def test_shares_are_all_images_once_and_weights_are_one(size: int, images: int) -> None:
    worlds = [World(rank, size) for rank in range(size)]
    assert sum(world.weight_of(images) for world in worlds) == pytest.approx(1)
    if not worlds[0].divides(images):
        return
    taken = [range(images)[world.share(0, images)] for world in worlds]
    assert sorted(place for share in taken for place in share) == list(range(images))
    assert [len(share) for share in taken] == worlds[0].share_sizes(images)
    assert min(len(share) for share in taken) > 1


def test_one_process_and_all_that_is_outside_of_a_step_are_left_alone() -> None:
    tensor = torch.arange(3.0, requires_grad=True)
    for world in (World(), World(1, 2)):  # of which the second would find nobody to speak to
        assert world.sum(tensor) is world.mean(tensor) is tensor
        (same,) = world.means([tensor])
        assert same is tensor
    with World().step(100):
        assert World().sum(tensor) is tensor
