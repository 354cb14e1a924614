"""bf16 on a CPU, with real child processes: some that work, some that die as oneDNN's do."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from polarbear.base.errors import PolarbearError
from polarbear.engine import cpu_bf16
from polarbear.engine.machine import Machine
from polarbear.settings.settings import Settings

BF16 = Settings("er", device="cpu", precision="bf16")

DIE = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
DIE_WITH_AMX = f"""
import os
if os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX512_CORE_BF16":
    {DIE}
"""


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of verdicts, not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY"):
        monkeypatch.delenv(name, raising=False)
    cpu_bf16._fault.cache_clear()
    yield tmp_path / "cache" / "polarbear" / "cpu-bf16.json"
    cpu_bf16._fault.cache_clear()


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[], int]]:
    """Take another program for the child; gives how often it has begun."""

    def install(program: str) -> Callable[[], int]:
        begun = tmp_path / "begun"
        begun.touch()
        count = f"with open({str(begun)!r}, 'a') as file: file.write('.')\n"
        monkeypatch.setattr(cpu_bf16, "PROGRAM", count + program)
        return lambda: len(begun.read_text())

    return install


def as_a_new_process() -> None:
    cpu_bf16._fault.cache_clear()


def refusal(settings: Settings = BF16) -> str:
    with pytest.raises(PolarbearError) as refused:
        Machine.of(settings)
    return str(refused.value)


def test_the_verdict_is_that_of_a_real_trial_and_is_noted(notes: Path) -> None:
    why = cpu_bf16._fault(())
    assert why in (None, "died of SIGILL"), why
    assert list(json.loads(notes.read_text()).values()) == [why or "works"]


def test_where_a_child_dies_bf16_is_refused_with_what_helps_there(children) -> None:
    children(DIE_WITH_AMX)
    message = refusal()
    assert "died of SIGILL" in message
    assert "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment before" in message
    assert message.endswith("or use --precision fp32")


def test_a_remedy_that_does_not_help_is_not_named(children) -> None:
    children(DIE)
    assert refusal().endswith("died of SIGILL. To go on, use --precision fp32")


def test_with_the_remedy_in_the_environment_bf16_is_used(children, monkeypatch) -> None:
    begun = children(DIE_WITH_AMX)
    refusal()
    assert begun() == 2
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    as_a_new_process()
    assert Machine.of(BF16).precision == "bf16"
    assert begun() == 2, "the remedy had been tried"


@pytest.mark.parametrize("program", [DIE, "pass"])
def test_a_verdict_is_remembered(children, program: str) -> None:
    def verdict() -> str | None:
        try:
            Machine.of(BF16)
        except PolarbearError as error:
            return str(error)
        return None

    begun = children(program)
    first, tried = verdict(), begun()
    as_a_new_process()
    assert verdict() == first
    assert begun() == tried


def test_other_instructions_have_a_verdict_of_their_own(children, monkeypatch) -> None:
    begun = children("pass")
    Machine.of(BF16)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    Machine.of(BF16)
    assert begun() == 2


@pytest.mark.parametrize("damaged", ["{", "[]", '{"x": 3}', "\0"])
def test_damaged_notes_are_as_none(children, notes: Path, damaged: str) -> None:
    begun = children("pass")
    notes.parent.mkdir(parents=True)
    notes.write_text(damaged)
    Machine.of(BF16)
    assert begun() == 1
    as_a_new_process()
    Machine.of(BF16)
    assert begun() == 1


def test_a_verdict_of_no_known_kind_is_as_none(children, notes: Path) -> None:
    begun = children("pass")
    Machine.of(BF16)
    notes.write_text(json.dumps(dict.fromkeys(json.loads(notes.read_text()), 3)))
    as_a_new_process()
    Machine.of(BF16)
    assert begun() == 2


def test_where_no_note_can_be_kept_a_process_tries_once(children, notes: Path) -> None:
    notes.parent.parent.write_text("a file where the folder would be")
    begun = children("pass")
    Machine.of(BF16)
    Machine.of(BF16)
    assert begun() == 1


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "died of SIGKILL"),
        ("raise OSError('no room')", "failed: OSError: no room"),
        ("raise SystemExit(3)", "failed: exit code 3"),
    ],
)
def test_what_may_end_otherwise_the_next_time_is_not_noted(
    children, notes: Path, program: str, why: str
) -> None:
    children(program)
    assert why in refusal()
    assert not notes.exists()


def test_a_child_that_hangs_is_ended(children, notes: Path, monkeypatch) -> None:
    children("import time; time.sleep(600)")
    monkeypatch.setattr(cpu_bf16, "SECONDS", 0.5)
    assert "took more than 0.5 s" in refusal()
    assert not notes.exists()


def test_it_is_tried_from_any_thread(children) -> None:
    children("pass")
    machines: list[Machine] = []
    thread = threading.Thread(target=lambda: machines.append(Machine.of(BF16)))
    thread.start()
    thread.join()
    assert machines[0].precision == "bf16"


@pytest.mark.parametrize("precision", ["auto", "fp32", "tf32"])
def test_nothing_is_tried_for_another_precision(children, precision) -> None:
    begun = children(DIE)
    Machine.of(Settings("er", device="cpu", precision=precision))
    assert begun() == 0


def test_the_command_refuses_it_in_one_line(children, refused, tmp_path: Path) -> None:
    children(DIE_WITH_AMX)
    words = ("er", "--benchmark", "iirc-shapes", "--device", "cpu", "--precision", "bf16")
    message = refused("run", *words, "--out", tmp_path / "run")
    assert "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16" in message
    assert not (tmp_path / "run").exists()
