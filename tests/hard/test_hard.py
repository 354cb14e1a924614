"""A short piece of every campaign; ``make hard`` runs them at length."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hard.power_cuts import unable

TESTS = Path(__file__).parents[1]


def campaign(name: str, out: Path, *words: object) -> str:
    """Run a campaign in a process of its own, as it forks; gives what it prints."""
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    ended = subprocess.run(
        [sys.executable, "-m", f"hard.{name}", "--seed", "0", "--out", out, *map(str, words)],
        capture_output=True,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": path},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_killed_runs_go_on_to_the_same_bytes(tmp_path: Path) -> None:
    said = campaign("kills", tmp_path, "--count", 20, "--only", "er:,own loop")
    assert "runs whole in the end" in said


def test_flipped_bits_are_detected_or_harmless(tmp_path: Path) -> None:
    assert "detected" in campaign("bits", tmp_path, "--count", 60)


def test_mutated_files_are_read_or_refused_by_name(tmp_path: Path) -> None:
    assert "refused by name" in campaign("fuzz", tmp_path, "--count", 300)


def test_after_a_power_cut_runs_are_whole_or_go_on(tmp_path: Path) -> None:
    if reason := unable():
        pytest.skip(f"needs disks that can be cut: {reason}")
    assert "power cuts" in campaign("power_cuts", tmp_path, "--count", 8)
