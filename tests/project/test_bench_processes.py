"""bench/processes.py: what processes share while they train the runs of one command."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest

from doc_pages import ROOT

LONG = 300.0  # seconds; nothing here takes as long unless it hangs


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module, by the name under which processes that are started find it too."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    return import_module("processes")


def until(done: Callable[[], bool]) -> None:
    """Wait; raises where it would be for good."""
    deadline = time.monotonic() + LONG
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_is_taken_once_and_the_rest_is_left(processes: ModuleType) -> None:
    one, two = processes.places(2)
    mine, others = one.take("abcd", Event()), two.take("abcd", Event())
    assert [next(mine), next(others), next(mine)] == ["a", "b", "c"]
    assert one.left("abcd") == two.left("abcd") == "d"
    assert [*others] == ["d"]
    assert [*mine] == []
    assert one.left("abcd") == ""


def test_a_process_that_is_to_stop_leaves_the_runs_to_the_others(processes: ModuleType) -> None:
    one, two = processes.places(2)
    stop = Event()
    mine = one.take("abcd", stop)
    assert next(mine) == "a"
    stop.set()
    assert [*mine] == []
    assert [*two.take("abcd", Event())] == ["b", "c", "d"]


def test_the_device_is_shared_among_all_runs_under_way(processes: ModuleType) -> None:
    one, two = processes.places(2)
    assert one.share() == 1
    mine, others = one.take("abcd", Event()), two.take("abcd", Event())
    next(mine), next(others), next(others)
    assert one.share() == two.share() == 1 / 3
    two.give_back()
    assert one.share() == 1 / 2
    two.leave()
    assert one.share() == 1


def one_is_killed(place: Any) -> int:
    """Take a run beside the other process, which is killed; returns once the device is free."""
    next(place.take("ab", Event()))
    if place.number == 0:
        until(lambda: place.share() == 1 / 2)
        os.kill(os.getpid(), signal.SIGKILL)
    until(lambda: not place.left("ab"))
    until(lambda: place.share() == 1)
    return 7


def test_a_process_that_is_killed_has_nothing_under_way(processes: ModuleType) -> None:
    codes = processes.in_processes(one_is_killed, processes.places(2))
    assert codes == [-signal.SIGKILL, 7]


class AskedWhileStarting:
    """Work that is asked to stop as soon as it is sent to a process, before that one runs."""

    def __reduce__(self) -> tuple[Any, ...]:
        os.kill(os.getpid(), signal.SIGTERM)
        return (partial, (last,))


def last(place: Any) -> int:
    time.sleep(LONG)
    return 0


@pytest.fixture
def deaf() -> Iterator[None]:
    """Let no SIGTERM end the tests."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("deaf")
def test_a_stop_while_processes_start_reaches_all(processes: ModuleType) -> None:
    codes = processes.in_processes(AskedWhileStarting(), processes.places(2))
    assert codes == [-signal.SIGTERM] * 2


def start_two(told: Path) -> None:
    """Be a parent of two processes that last."""
    processes = import_module("processes")
    processes.in_processes(partial(tell_and_last, told=told), processes.places(2))


def tell_and_last(place: Any, told: Path) -> int:
    """Write down this process's number, then its stop."""
    with import_module("polarbear.launch.stop").stop_on_signal() as stop:
        (told / f"{place.number}-began").touch()
        until(stop.is_set)
        (told / f"{place.number}-stopped").touch()
    return 0


def test_processes_stop_when_their_parent_is_killed(processes: ModuleType, tmp_path: Path) -> None:
    parent = processes.SPAWN.Process(target=start_two, args=(tmp_path,))
    parent.start()
    until(lambda: len([*tmp_path.glob("*-began")]) == 2)
    parent.kill()
    until(lambda: len([*tmp_path.glob("*-stopped")]) == 2)
    parent.join()
