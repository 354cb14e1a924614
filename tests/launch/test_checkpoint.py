import json
import logging
import os
from pathlib import Path

import pytest
import safetensors.numpy
import torch
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st
from torch import Tensor

from engine_run import newest_checkpoint
from polarbear.base.sealed import sealed
from polarbear.launch.checkpoint import Checkpoint, clear, numbers, save
from polarbear.launch.network_files import Written, fingerprints
from polarbear.runs.guards import RunError


def tensors(number: int) -> dict[str, Tensor]:
    wide = torch.arange(48, dtype=torch.float32).view(2, 3, 2, 4) + number
    return {
        "model/weight": wide.to(memory_format=torch.channels_last),
        "model/count": torch.tensor(number),
        "head/old": torch.empty(0, 8),
        "memory/labels": torch.tensor([True, False]),
        "losses/epoch": torch.tensor([0.1, 0.2], dtype=torch.float64),
    }


def write(folder: Path, *numbers: int) -> None:
    for number in numbers:
        save(folder, number, Checkpoint(tensors(number), {"progress": {"task": number}}))


def newest(folder: Path) -> int:
    found = newest_checkpoint(folder)
    assert found is not None
    number, checkpoint = found
    assert checkpoint.facts == {"progress": {"task": number}}
    expected = tensors(number)
    assert checkpoint.tensors.keys() == expected.keys()
    for name, tensor in checkpoint.tensors.items():
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor, expected[name])
    return number


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "absent") is None
    write(tmp_path, 7)
    assert newest(tmp_path) == 7


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 9, 10)
    assert newest(tmp_path) == 10
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [f"{n:08d}.{kind}" for n in (9, 10) for kind in ("json", "safetensors")]


def test_no_file_is_a_pickle(tmp_path: Path) -> None:
    write(tmp_path, 1)
    arrays = safetensors.numpy.load((tmp_path / "00000001.safetensors").read_bytes())
    assert arrays["model/weight"].tolist() == tensors(1)["model/weight"].tolist()
    assert json.loads((tmp_path / "00000001.json").read_text())["facts"] == {
        "progress": {"task": 1}
    }


@checks(deadline=None)
@given(st.data())
def test_a_file_cut_anywhere_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("run")
    write(folder, 1, 2)
    file = folder / data.draw(st.sampled_from(["00000002.json", "00000002.safetensors"]))
    # Without its last byte, a line break, the JSON is still whole.
    size = file.stat().st_size - (2 if file.suffix == ".json" else 1)
    os.truncate(file, data.draw(st.integers(0, size)))
    assert newest(folder) == 1


@checks(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_of_the_tensors_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, place: int, change: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    write(folder, 1, 2)
    file = folder / "00000002.safetensors"
    content = bytearray(file.read_bytes())
    content[place % len(content)] ^= change
    file.write_bytes(content)
    assert newest(folder) == 1


@pytest.mark.parametrize("kind", ["json", "safetensors"])
def test_a_missing_half_is_noticed(tmp_path: Path, kind: str) -> None:
    write(tmp_path, 1, 2)
    (tmp_path / f"00000002.{kind}").unlink()
    assert newest(tmp_path) == 1


@pytest.mark.parametrize("content", ["[]", "3", "null", "{}", '{"sha256": null}', "\x00\xff"])
def test_json_that_is_no_checkpoint_is_noticed(tmp_path: Path, content: str) -> None:
    write(tmp_path, 1, 2)
    (tmp_path / "00000002.json").write_text(content, encoding="latin-1")
    assert newest(tmp_path) == 1


def test_a_damaged_one_is_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 1, 2)
    os.truncate(tmp_path / "00000002.safetensors", 100)
    with caplog.at_level(logging.WARNING, "polarbear"):
        newest(tmp_path)
    assert "00000002.json is damaged, the one before is used: its tensors are not" in caplog.text


def test_if_all_are_damaged_there_is_none(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    for number in (1, 2):
        os.truncate(tmp_path / f"{number:08d}.safetensors", 100)
    assert newest_checkpoint(tmp_path) is None
    assert numbers(tmp_path) == [2, 1]
    clear(tmp_path)
    assert not list(tmp_path.iterdir())


def test_every_flipped_bit_of_the_facts_is_detected(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    file = tmp_path / "00000002.json"
    text = file.read_bytes()
    for bit in range(8 * len(text)):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        assert newest(tmp_path) == 1, flipped


def test_after_a_damaged_one_its_number_is_written_again(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    os.truncate(tmp_path / "00000002.safetensors", 100)
    write(tmp_path, newest(tmp_path) + 1)
    assert newest(tmp_path) == 2
    (tmp_path / "00000002.json").unlink()
    assert newest(tmp_path) == 1


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    left = [".00000003.safetensors.part", "00000003.safetensors", ".00000003.json.part"]
    left.append("00000000.safetensors")
    for name in left:
        (tmp_path / name).write_bytes(b"half")
    assert newest(tmp_path) == 2
    write(tmp_path, 3)
    assert newest(tmp_path) == 3
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [f"{n:08d}.{kind}" for n in (2, 3) for kind in ("json", "safetensors")]


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    others = ["notes.txt", "1.json", "00000001.json.bak", "000000001.json", "best.safetensors"]
    for name in others:
        (tmp_path / name).write_text("mine")
    write(tmp_path, 1, 2, 3)
    clear(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(others)


def test_nothing_is_written_or_deleted_through_a_link(tmp_path: Path) -> None:
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "run" / "checkpoint"
    write(elsewhere, 1, 2)
    before = {file.name: file.read_bytes() for file in elsewhere.iterdir()}
    link.parent.mkdir()
    link.symlink_to(elsewhere)
    for change in (lambda: write(link, 9), lambda: clear(link)):
        with pytest.raises(RunError, match=r"run/checkpoint is a link, and a run changes no files"):
            change()
    assert {file.name: file.read_bytes() for file in elsewhere.iterdir()} == before


def test_a_failed_save_leaves_the_earlier_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, 2)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path, 3)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


# Frozen networks: a file each, shared by the checkpoints that have it.


def network(start: float) -> dict[str, Tensor]:
    shared = torch.arange(6.0) + start
    return {"weight": shared, "tied": shared, "count": torch.tensor(3), "on": torch.tensor([True])}


def keep(folder: Path, number: int, written: Written | None = None, **starts: float) -> None:
    networks = {name: network(start) for name, start in starts.items()}
    save(folder, number, Checkpoint({}, {"number": number}, networks), written)


def kept(folder: Path) -> tuple[int, dict[str, float]]:
    """The newest whole checkpoint and where its networks start."""
    found = newest_checkpoint(folder)
    assert found is not None
    for state in found[1].networks.values():
        expected = network(float(state["weight"][0]))
        assert state.keys() == expected.keys()
        assert all(torch.equal(state[name], expected[name]) for name in state)
        assert all(state[name].dtype == expected[name].dtype for name in state)
    return found[0], {n: float(s["weight"][0]) for n, s in found[1].networks.items()}


def network_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("network-*.safetensors"))


def test_networks_come_back_and_equal_ones_are_one_file(tmp_path: Path) -> None:
    keep(tmp_path, 1, first=0, second=7, teacher=7)
    assert kept(tmp_path) == (1, {"first": 0, "second": 7, "teacher": 7})
    assert len(network_files(tmp_path)) == 2
    write(tmp_path, 2)
    assert "networks" not in json.loads((tmp_path / "00000002.json").read_text())


def test_a_network_is_written_once_by_a_process(tmp_path: Path) -> None:
    written = Written()
    keep(tmp_path, 1, written, first=0)
    (file,) = network_files(tmp_path)
    inode = file.stat().st_ino
    keep(tmp_path, 2, written, first=0, second=7)
    keep(tmp_path, 3, written, first=0, second=7)
    assert file.stat().st_ino == inode
    keep(tmp_path, 4, Written(), first=0)  # another process, which does not trust what is there
    assert file.stat().st_ino != inode


def test_a_network_that_was_changed_in_place_is_written_again(tmp_path: Path) -> None:
    written, state = Written(), network(0)
    for number in (1, 2):
        save(tmp_path, number, Checkpoint({}, {}, {"mean": state}), written)
        state["weight"].data += 1  # as a replayed graph does: PyTorch counts no change
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found[1].networks["mean"]["weight"].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("change", [(0, 1), (1, 3), (3, 5), (2, 4)])
def test_two_weights_that_change_their_signs_make_another_network(
    tmp_path: Path, change: tuple[int, int]
) -> None:
    written, state = Written(), network(1)
    save(tmp_path, 1, Checkpoint({}, {}, {"one": state}), written)
    state["weight"][list(change)] *= -1
    save(tmp_path, 2, Checkpoint({}, {}, {"one": state}), written)
    assert len(network_files(tmp_path)) == 2


def test_a_network_no_kept_checkpoint_has_is_removed(tmp_path: Path) -> None:
    written = Written()
    for number in range(1, 5):
        keep(tmp_path, number, written, always=0, teacher=10 * number)
    assert len(network_files(tmp_path)) == 3
    (tmp_path / "00000003.json").write_text("{}")  # a damaged one has none
    keep(tmp_path, 4, written, always=0)
    assert len(network_files(tmp_path)) == 1
    assert kept(tmp_path) == (4, {"always": 0})
    clear(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_no_longer_there_is_written_again(tmp_path: Path) -> None:
    written = Written()
    keep(tmp_path, 1, written, first=0)
    clear(tmp_path)
    keep(tmp_path, 2, written, first=0)
    assert kept(tmp_path) == (2, {"first": 0})


@pytest.mark.parametrize("damage", ["cut", "flip", "missing"])
def test_a_damaged_network_damages_the_checkpoints_that_have_it(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    keep(tmp_path, 1, first=0)
    (before,) = network_files(tmp_path)
    keep(tmp_path, 2, first=0, second=7)
    (file,) = set(network_files(tmp_path)) - {before}
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content if damage == "flip" else content[:-1])
    assert kept(tmp_path) == (1, {"first": 0})
    assert "00000002.json is damaged, the one before is used" in caplog.text
    assert file.name in caplog.text
    keep(tmp_path, 2, first=0, second=7)  # as the run writes it when it comes there again
    assert kept(tmp_path) == (2, {"first": 0, "second": 7})


@pytest.mark.parametrize("networks", [[], 3, {"first": None}, {"first": "../x"}, {"first": "\0"}])
def test_facts_that_name_no_networks_are_noticed(tmp_path: Path, networks: object) -> None:
    keep(tmp_path, 1, first=0)
    keep(tmp_path, 2, first=7)
    content = json.loads((tmp_path / "00000002.json").read_text())
    del content["check"]
    (tmp_path / "00000002.json").write_text(json.dumps(sealed({**content, "networks": networks})))
    assert kept(tmp_path) == (1, {"first": 0})


def test_networks_of_a_killed_process_are_cleared_away_and_others_left_alone(
    tmp_path: Path,
) -> None:
    checksum = "0" * 64
    left = [f"network-{checksum}.safetensors", f".network-{checksum}.safetensors.part"]
    others = ["network-mine.safetensors", f"network-{checksum}.json", f"my-network-{checksum}"]
    for name in (*left, *others):
        (tmp_path / name).write_bytes(b"half")
    keep(tmp_path, 1, first=0)
    names = {file.name for file in tmp_path.iterdir()}
    assert names.isdisjoint(left)
    assert names.issuperset(others)


@pytest.mark.parametrize("fails_at", [1, 3, 5])
def test_a_save_that_fails_at_any_file_leaves_the_earlier_checkpoint(
    tmp_path: Path, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, 1, first=0)
    calls, sync = 0, os.fsync

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        keep(tmp_path, 2, first=7)
    monkeypatch.undo()
    assert kept(tmp_path) == (1, {"first": 0})
    keep(tmp_path, 2, first=7)
    assert kept(tmp_path) == (2, {"first": 7})
    assert len(network_files(tmp_path)) == 2


def test_a_networks_mark_is_of_its_content_and_its_order_whatever_stands_beside_it() -> None:
    one, other = {"w": torch.randn(40)}, {"w": torch.randn(9).bfloat16()}
    shifted = {"w": one["w"].roll(2)}  # the same words of 8 bytes
    marks = fingerprints([one, other, shifted, one, other])
    assert (marks[0], marks[1]) == (marks[3], marks[4])
    assert len(set(marks)) == 3
    assert [fingerprints([state])[0] for state in (one, other, shifted)] == marks[:3]
