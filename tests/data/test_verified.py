import os
import time
from pathlib import Path

import pytest

from polarbear.data import verified


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that was last changed long enough ago."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verified, "SETTLED_NS", 0)
    file = tmp_path / "file"
    file.write_bytes(b"polar bear")
    return file


def test_an_unchanged_file_is_known_again(settled: Path) -> None:
    assert not verified.was_verified(settled, "abc")
    verified.remember_verified(settled, "abc")
    assert verified.was_verified(settled, "abc")
    assert not verified.was_verified(settled, "def")


def test_a_changed_file_is_not_known_even_with_its_old_time(settled: Path) -> None:
    verified.remember_verified(settled, "abc")
    before = settled.stat()
    time.sleep(0.02)  # longer than a tick of the file system's clock
    settled.write_bytes(b"brown bear")
    os.utime(settled, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert settled.stat().st_mtime_ns == before.st_mtime_ns
    assert not verified.was_verified(settled, "abc")


def test_another_file_in_its_place_is_not_known(settled: Path) -> None:
    verified.remember_verified(settled, "abc")
    other = settled.with_name("other")
    other.write_bytes(b"polar bear")
    other.replace(settled)
    assert not verified.was_verified(settled, "abc")


def test_a_file_written_just_now_is_not_remembered(
    settled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "SETTLED_NS", 10**12)
    verified.remember_verified(settled, "abc")
    assert not verified.was_verified(settled, "abc")


def test_damaged_notes_and_a_folder_that_cannot_be_written_only_cost_time(
    settled: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    verified.remember_verified(settled, "abc")
    (tmp_path / "cache" / "polarbear" / "verified.json").write_text("{")
    assert not verified.was_verified(settled, "abc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(settled / "no folder"))
    verified.remember_verified(settled, "abc")
    assert not verified.was_verified(settled, "abc")
