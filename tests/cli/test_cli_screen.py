"""What commands print on narrow terminals, into pipes and in small alphabets: real processes."""

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polarbear.benchmark.schedule import Schedule
from polarbear.cli import main
from polarbear.cli.shared.console import Screen, plain_table, print_table
from polarbear.named.folder import Blueprint, Data
from synthetic_runs import make_run

POLARBEAR = [sys.executable, "-m", "polarbear"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


def on_terminal(columns: int, *words: object) -> list[str]:
    """The lines a command writes on a terminal so wide, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    command = [*POLARBEAR, *map(str, words)]
    environment = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 65536):
                written += part
        except OSError:  # so ends a terminal that nobody writes to any more
            pass
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode())
    return text.replace("\r", "").splitlines()


def some_runs() -> list[str]:
    """Runs as ``polarbear run`` leaves them, and one that is not so tame."""
    for order in (0, 1):
        make_run(Path(f"runs/iirc-shapes/er/order-{order}-seed-100"), "er", order)
    make_run(Path("runs/iirc-shapes/icarl-norm/order-0-seed-100"), "icarl-norm")
    make_run(Path("runs/with a space and 'quotes'"), "lucir")
    return sorted(str(manifest.parent) for manifest in Path("runs").rglob("manifest.json"))


# --- what `runs` prints, the others take --------------------------------------------------------


@pytest.mark.parametrize("where", ["here", "above", "elsewhere"])
def test_what_runs_prints_other_commands_take(
    where: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    made = [(tmp_path / path).resolve() for path in some_runs()]
    words = {"here": [], "above": [f"{tmp_path.name}/runs"], "elsewhere": [f"{tmp_path}/runs/"]}
    place = {"here": tmp_path, "above": tmp_path.parent, "elsewhere": Path("/")}
    monkeypatch.chdir(place[where])
    assert main(["runs", *words[where]]) == 0
    listed = [shlex.split(line)[-1] for line in capsys.readouterr().out.splitlines()[1:]]
    assert [Path(path).resolve() for path in listed] == made
    out = str(tmp_path / "out")
    for path in (listed[0], f"{listed[-1]}/", str(Path(listed[0]).parent), *words[where]):
        assert main(["resume", path]) == 0
        assert main(["compare", path, listed[2]]) == (2 if path in words[where] else 0)
    for path in (listed[0], f"{listed[-1]}/"):
        figures = ["--figures", "average-pw-js", "--formats", "svg"]
        assert main(["report", path, "--out", out, *figures]) == 0
        assert "no run has kept its raw scores" in _said(capsys, "decide", path)
        assert "no whole finished run" in _said(capsys, "summarise", path, "--out", out)


def _said(capsys: Any, *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 2
    return str(capsys.readouterr().err)


def test_without_a_folder_commands_look_where_runs_looks(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    for command in ("runs", "report", "decide", "compare"):
        assert "there is no folder runs" in _said(capsys, command)
    some_runs()
    assert main(["report", "--figures", "average-pw-js", "--formats", "svg"]) == 0
    assert "Open report/index.html" in capsys.readouterr().out
    assert "the paper has no table for iirc-shapes-v1: give two folders" in _said(capsys, "compare")
    assert "no run has kept its raw scores" in _said(capsys, "decide")


# --- narrow terminals ---------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 100])
def test_no_width_cuts_a_folder_or_a_number(columns: int) -> None:
    paths = some_runs()
    lines = on_terminal(columns, "runs")
    for path in paths:
        (place,) = [i for i, line in enumerate(lines) if shlex.quote(path) in line]
        told = " ".join(lines[place : place + 3])
        assert re.search(r"\b0\.\d{3}\b", told), told
        assert "finished" in told
    assert all(len(line.rstrip()) <= columns for line in lines)


def test_a_narrow_terminal_gets_every_score(capsys: Any) -> None:
    path = make_run(Path("er"))
    assert main(["resume", str(path)]) == 0
    wide = capsys.readouterr().out
    narrow = on_terminal(60, "resume", path)
    assert all(len(line.rstrip()) <= 60 for line in narrow)
    numbers = re.findall(r"\b\d\.\d{3}\b", wide)
    assert len(numbers) > 50
    assert sorted(re.findall(r"\b\d\.\d{3}\b", " ".join(narrow))) == sorted(numbers)
    assert not any("…" in line for line in narrow)


def table_on(width: int) -> list[str]:
    screen = Screen(width=width, force_terminal=True, color_system=None)
    table = plain_table("method", "R_j", "the last score", "")
    table.add_row("a method with a long name of its own", "0.123", "0.456", "and what it does")
    with screen.capture() as captured:
        print_table(screen, table)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_tables_come_in_parts_where_there_is_no_room() -> None:
    assert table_on(100) == [
        "method                                  R_j  the last score",
        "a method with a long name of its own  0.123           0.456  and what it does",
    ]
    assert table_on(40) == [
        "                                     the",
        "                                    last",
        "method                        R_j  score",
        "a method with a long name   0.123  0.456",
        "of its own",
        "method",
        "a method with a long    and what it does",
        "name of its own",
    ]


# --- pipes and alphabets ------------------------------------------------------------------------


def through(pipe: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = pipe.replace("polarbear", shlex.join(POLARBEAR))
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        errors="replace",
        env=os.environ | environment,
    )


@pytest.mark.parametrize("words", ["runs", "runs --json", "describe iirc-cifar", "run er --help"])
def test_a_reader_that_has_had_enough_is_no_error(words: str) -> None:
    some_runs()
    done = through(f"polarbear {words} | true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_closed_streams_are_no_error() -> None:
    some_runs()
    assert through("polarbear runs >&-").stderr == ""
    assert through("polarbear runs >&-").returncode == 0
    assert through("polarbear runs nowhere 2>&-").returncode == 2


def test_one_line_per_run_goes_into_a_pipe() -> None:
    paths = some_runs()
    done = through("polarbear runs | tail -n +2")
    assert [shlex.split(line)[-1] for line in done.stdout.splitlines()] == paths


@pytest.mark.parametrize("alphabet", ["ascii", "latin-1"])
def test_small_alphabets_get_other_signs(alphabet: str) -> None:
    some_runs()
    make_run(Path("runs/čŕ"), "icarl-cnn")
    small = {"PYTHONIOENCODING": alphabet}
    compared = "polarbear compare runs/iirc-shapes/er runs/iirc-shapes/icarl-norm"
    for words in (compared, "polarbear runs", "polarbear report --help", "polarbear run er --help"):
        done = through(words, **small)
        assert (done.returncode, done.stderr) == (0, ""), words
    shown = through(compared, **small).stdout
    assert "a - b" in shown
    listed = through("polarbear runs --json", **small).stdout
    assert "runs/čŕ" in [run["path"] for run in json.loads(listed)]


def test_an_error_in_a_small_alphabet_is_one_line() -> None:
    done = through("polarbear describe 'čŕ–'", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert done.stderr.startswith("polarbear: unknown benchmark '??-'")
    assert done.stderr.count("\n") == 1


def test_names_that_the_font_lacks_give_no_warning() -> None:
    tree = Path("tree.toml")
    tree.write_text('alone = ["灯🐻"]\n[tree]\n"熊" = ["白熊", "棕熊"]\n', encoding="utf-8")
    arrays = {}
    for split in ("train", "test"):
        labels = np.repeat(["白熊", "棕熊", "灯🐻"], 20)
        images = np.zeros((60, 8, 8, 3), np.uint8)
        arrays |= {f"{split}_images": images, f"{split}_labels": labels}
    np.savez("arrays.npz", **arrays)
    orders = (Schedule.of([["熊"], ["白熊", "灯🐻", "棕熊"]]),)
    Blueprint("zoo", Data("arrays", Path("arrays.npz").resolve()), tree, orders).write(Path("zoo"))
    make_run(Path("runs/er"), benchmark=str(Path("zoo").resolve()), predictions=True)
    words = "report --figures hierarchy --formats png,pdf,svg"
    done = through(f"polarbear {words}", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "熊" in Path("report/figures/hierarchy.svg").read_text(encoding="utf-8")
