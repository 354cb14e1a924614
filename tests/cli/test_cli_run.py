"""``polarbear run``, ``resume``, ``methods`` and ``runs``: tiny runs through the real commands."""

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats

from polarbear.base.errors import PolarbearError, install_line
from polarbear.base.files import write_json
from polarbear.base.how_far import progress_log
from polarbear.base.sealed import sealed
from polarbear.benchmark.stream import Stream
from polarbear.cli import ToStderr, main
from polarbear.cli.commands.run import parse, plan, threads_of
from polarbear.cli.shared import live as watch
from polarbear.cli.shared.eta import Pace, Workload
from polarbear.cli.shared.live import Lines, Watch
from polarbear.cli.shared.sweep import parse_numbers
from polarbear.engine.trainer import Progress, Trainer
from polarbear.launch import runner as session
from polarbear.launch.assembly import build_learner
from polarbear.methods import catalogue
from polarbear.methods.catalogue import METHODS
from polarbear.methods.lucir import LUCIR
from polarbear.methods.presets import settings_for
from polarbear.named.registry import load
from polarbear.runs.folder import RunFolder
from polarbear.runs.own_loop import start_run
from polarbear.score.record import ScoreRecord
from polarbear.settings.settings import KINDS, Settings, limits

SHAPES = ("--benchmark", "iirc-shapes")
TINY = (*SHAPES, "--epochs", "1", "--tasks", "2", "--threads", "1")
TINIEST = (*SHAPES, "--epochs", "1", "--tasks", "1", "--first-task-factor", "1", "--threads", "1")
ON_CPU = ("--device", "cpu")  # where a GPU would do otherwise: orders side by side, whole epochs
RUN = (sys.executable, "-m", "polarbear", "run", "er", *TINY, "--seed", "7")


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data folder, colours or width from outside; the number of threads as before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("POLARBEAR_DATA", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True, scope="module")
def _threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str) -> str:
        assert main(arguments) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that was never stopped, with what it printed in the files out and err."""
    folder = tmp_path_factory.mktemp("unbroken")
    command = [
        sys.executable,
        "-m",
        "polarbear",
        "run",
        "er",
        *TINY,
        "--seed",
        "7",
        "--tensorboard",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "out").write_text(done.stdout)
    (folder / "err").write_text(done.stderr)
    return RunFolder.open(folder / "runs" / "iirc-shapes" / "er" / "order-0-seed-7")


def printed(run: RunFolder, name: str) -> str:
    return (run.path.parents[3] / name).read_text()


# polarbear run


def test_a_run_goes_to_its_own_folder_and_prints_its_table(unbroken: RunFolder) -> None:
    assert unbroken.finished
    table = unbroken.table()
    lines = printed(unbroken, "out").splitlines()
    assert lines[0] == "er on iirc-shapes, order 0"
    rows = [line.split() for line in lines]
    for task, seen in ((0, "6"), (1, "11")):
        row = next(row for row in rows if row[:2] == ["task", str(task)])
        assert row[2:4] == [seen, f"{table.r[task]:.3f}"]
    late = f"{100 * table.scores['late_recall'][1]:.0f} % of the images of later subclasses get it."
    assert f"Does it know an old superclass on new subclasses? {late}" in lines
    assert lines[-1] == "The run is in runs/iirc-shapes/er/order-0-seed-7"
    assert list((unbroken.path / "tensorboard").iterdir())


def test_without_a_terminal_progress_is_plain_lines(unbroken: RunFolder) -> None:
    r = unbroken.table().r
    what, settings, *after = printed(unbroken, "err").splitlines()
    assert re.fullmatch(r"er on iirc-shapes, order 0, seed 7, 2 tasks, on .+, in runs/.+", what)
    assert settings.endswith("; not as in the preset: epochs 1")
    ends = (r" = {}, \d+ s left", " = {}")
    for j, (line, end) in enumerate(zip(after, ends, strict=True)):
        assert re.fullmatch(f"after task {j}: R_{j}" + end.format(f"{r[j]:.3f}"), line)


def test_the_preset_applies_where_no_flag_is_given(unbroken: RunFolder) -> None:
    asked = Settings.from_dict(unbroken.manifest()["settings"])
    expected = settings_for("er", "iirc-shapes", seed=7, epochs=1, tasks=2)
    assert asked == replace(expected, decision="threshold")  # a manifest says what was meant
    assert unbroken.manifest()["threads"] == 1


def test_a_flag_wins_even_with_a_default_value() -> None:
    preset = settings_for("icarl-norm", "iirc-imagenet-lite")
    assert preset.learning_rate != Settings("er").learning_rate == 1.0
    where = ("--benchmark", "iirc-imagenet-lite")
    assert parse(["icarl-norm", *where]).settings.learning_rate == preset.learning_rate
    given = parse(["icarl-norm", *where, "--learning-rate", "1.0"])
    assert given.settings.learning_rate == 1.0
    assert given.settings.network == "resnet50"


def test_a_preset_of_your_own(tmp_path: Path, refused) -> None:
    (tmp_path / "mine.toml").write_text(
        "[iirc-shapes]\nepochs = 3\nmemory_total = 50\n"
        "[iirc-shapes.lucir]\noptions = {margin = 0.25}\n"
    )
    asked = parse(["lucir", *SHAPES, "--preset", "mine.toml", "--options.top-k", "1"]).settings
    assert (asked.epochs, asked.memory_total) == (3, 50)
    assert LUCIR.Options(**asked.options) == LUCIR.Options(margin=0.25, top_k=1)
    (tmp_path / "wrong.toml").write_text("[iirc-shapes]\nepoch = 3\n")
    message = refused("run", "er", *SHAPES, "--preset", "wrong.toml")
    assert "unknown setting 'epoch': did you mean 'epochs'?" in message


def test_none_is_a_value_and_flags_keep_their_types() -> None:
    words = ["--memory-per-class", "None", "--precision=bf16", "--keep-scores", "--device", "cpu"]
    words += ["--schedule", "steps", "--rate-steps", "0.3", "0.6", "--clip", "1", "--nesterov"]
    asked = parse(["er", *SHAPES, *words]).settings
    assert (asked.memory_per_class, asked.precision) == (None, "bf16")
    assert (asked.rate_steps, asked.clip, asked.nesterov) == ((0.3, 0.6), 1.0, True)
    assert (asked.keep_scores, asked.device) == (True, "cpu")


def test_values_by_name_are_json_or_text() -> None:
    words = ["--preparation", "mine:images", "--preparation-options", "side=64", "scale=[0.2, 1]"]
    asked = parse(["er", *SHAPES, *words, "pale=true", "name=a=b", "none=null", "--seed", "3"])
    found = {"side": 64, "scale": [0.2, 1], "pale": True, "name": "a=b", "none": None}
    assert asked.settings.preparation_options == found
    assert asked.settings.seed == 3
    assert parse(["er", *SHAPES]).settings.preparation_options == {}
    words = ["--network", "mine:vit", "--network-options", "depth=2", "name=tiny", "frozen=False"]
    words += ["pretrained=True", "side=None", 'told="None"', "how=none"]
    found = {"depth": 2, "name": "tiny", "frozen": False, "pretrained": True, "side": None}
    asked = parse(["er", *SHAPES, *words]).settings
    assert asked.network_options == {**found, "told": "None", "how": "none"}


def own_network() -> str:
    code = """
        from torch import nn

        def network(frozen: bool = True, side: int | None = None, wide=False) -> nn.Module:
            made = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(48, 4))
            made.out_features, made.frozen = 4, frozen
            return made
        """
    Path("network_for_a_test.py").write_text(dedent(code))
    return "network_for_a_test:network"


@pytest.mark.parametrize("word", ["False", "false"])
def test_a_network_is_told_false_by_pythons_word_and_by_jsons(output, word: str) -> None:
    options = [f"frozen={word}", f"wide={word}", "side=None"]
    words = ["--network", own_network(), "--network-options", *options, "--out", "run"]
    output("run", "er", *TINIEST, *words)
    manifest = RunFolder.open("run").manifest()
    assert "frozen_weights" not in manifest
    found = {"frozen": False, "wide": False, "side": None}
    assert manifest["settings"]["network_options"] == found


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("frozen=no", "frozen of {} must be true or false, not 'no': values on the command line "),
        ("frozen=maybe", "must be true or false, not 'maybe': values on the command line are JSON"),
        ("frozen=1", "must be true or false, not 1: "),
        ("wide=yes", "wide of {} must be true or false or null, not 'yes': "),
        ("side=big", "side of {} must be a whole number or null, not 'big': "),
        ("side=True", "must be a whole number or null, not True: "),
    ],
)
def test_a_value_that_a_network_would_misread_is_refused(
    refused, option: str, message: str
) -> None:
    words = ("--network", own_network(), "--network-options", option)
    assert message.format(own_network()) in refused("run", "er", *TINIEST, *words)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "compiled"),
    [
        ((), "auto"),
        (("--compile",), True),
        (("--compile", "--epochs", "3"), True),
        (("--no-compile",), False),
        (("--compile", "auto"), "auto"),
        (("--compile=no",), False),
        (("--preset", "compiled.toml"), True),
        (("--preset", "compiled.toml", "--compile", "auto"), "auto"),
    ],
)
def test_compiling_is_chosen_or_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], compiled: object
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("compiled.toml").write_text("compile = true\n")
    assert parse(["er", *SHAPES, *words]).settings.compile == compiled


def test_a_sweep_over_compiling(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text('[sweep]\ncompile = [true, false, "auto"]\n')
    for words in (("--sweep", "compile=true,no,auto"), ("--from", str(file))):
        asked = plan(["er", *SHAPES, *words])
        assert [one.settings.compile for one in asked] == [True, False, "auto"]


def test_every_setting_and_option_is_a_flag_with_help(output) -> None:
    text = output("run", "lucir", *SHAPES, "--help")
    for one in fields(Settings):
        if one.name not in ("method", "options"):
            assert re.search(rf" --(no-)?{one.name.replace('_', '-')} ", text), one.name
    assert "Seed of weights, shuffling, augmentation" in text
    assert "--optimiser {sgd,adamw}" in text
    assert "--schedule {plateau,cosine,steps,onecycle,constant}" in text
    assert "(default: 0.5 0.75)" in text
    assert "--options.lambda-base FLOAT" in text
    assert "--options.imprint-images INT" in text
    default = settings_for("lucir", "iirc-shapes").epochs
    assert f"Epochs per task. (from 1 to 1000000; default: {default})" in text
    assert re.search(r"--graph, --no-graph\s+Capture a task's steps", text)
    assert "--options." not in output("run", "er", "--help")
    assert "--batch-size" in output("run", "--help")


def test_help_tells_the_limits_of_settings_and_what_they_decide(output) -> None:
    shown = " ".join(re.sub(r"-{3,}|[│╭╮╰╯─]", " ", output("run", "er", "--help")).split())
    _, *parts = re.split(rf" ({'|'.join(KINDS)}) options ", shown)
    groups = dict(zip(parts[::2], parts[1::2], strict=True))
    for kind, words in KINDS.items():
        assert groups[kind].startswith(words)
    for one in fields(Settings):
        if one.name not in ("method", "options"):
            (_, told) = groups[one.metadata["kind"]].split(f" --{one.name.replace('_', '-')}", 1)
            allowed = limits(one).replace(",", "")
            hint = f"({allowed}; default: " if allowed else "(default: "
            assert hint in re.split(r" --(?!no-)", told)[0], one.name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "which method? It comes first: polarbear run METHOD"),
        (SHAPES, "which method? It comes first: polarbear run METHOD"),
        (("lucirr", *SHAPES), "unknown method 'lucirr': did you mean 'lucir'?"),
        (("er", "--benchmark", "iirc-shape"), "did you mean 'iirc-shapes'?"),
        (("er", "--preset", "papers"), "unknown preset 'papers': did you mean 'paper'?"),
        (("er",), "polarbear fetch cifar100 --root data"),
        (("er", *SHAPES, "--memory-per-class", "0"), "a memory of 0 images replays nothing"),
        (("er", *SHAPES, "--order", "5"), "no order 5: its 5 published orders are 0 to 4"),
        (("er", *SHAPES, "--orders", "3-7"), "no order 7: its 5 published orders are 0 to 4"),
        (("er", *SHAPES, "--orders", "0-99999999999"), "no order 99999999999: its 5 published"),
        (("er", *SHAPES, "--tasks", "50"), "tasks must be from 1 to 7, the tasks of iirc-shapes"),
        (("joint", *SHAPES, "--tasks", "8"), "tasks must be from 1 to 7, the tasks of iirc-shap"),
        (("er", *SHAPES, "--learning-rate", "inf"), "must be from 1e-12 to 1,000,000, not inf"),
        (("er", *SHAPES, "--learning-rate", "0"), "must be from 1e-12 to 1,000,000, not 0.0"),
        (
            ("er", *SHAPES, "--seed", str(2**64)),
            "seed must be from 0 to 18,446,744,073,709,551,615",
        ),
        (("er", *SHAPES, "--weight-decay", "1e308"), "weight_decay must be from 0 to 100, not 1e"),
        (("er", *SHAPES, "--first-task-factor", "1e308"), "must be from 0.01 to 1,000, not 1e+308"),
        (
            ("er", *SHAPES, "--warm-up", "20"),
            "warm_up must be at most 8, the epochs of the shortest",
        ),
        (("er", *SHAPES, "--rate-steps", "0.9", "0.1"), "the lowest first, such as 0.5 and 0.75"),
        (("er", *SHAPES, "--orders", "3-"), "write 0-9 or 0,3,5"),
        (("er", *SHAPES, "--order", "3", "--orders=0-1"), "--order or --orders, not both"),
        (("no:x:X", *SHAPES), "'no:x:X' is no dotted path"),
        (("er", *SHAPES, "--epochs", "0"), "epochs must be from 1 to 1,000,000, not 0"),
        (("er", *SHAPES, "--decision", "top2"), "unknown decision rule 'top2': did you mean 'top1"),
        (("er", *SHAPES, "--network", "resnet33"), "did you mean 'resnet32'?"),
        (("er", *SHAPES, "--device", "cuda:99"), "use --device cpu or auto"),
        (("er", *SHAPES, "--mlflow", "nope://x"), "MLflow cannot be used at 'nope://x'"),
    ],
)
def test_bad_input_is_refused_in_one_line(words: tuple[str, ...], message: str, refused) -> None:
    assert message in refused("run", *words)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--lerning-rate", "0.1"), "--learning-rate FLOAT"),
        (("--epochs", "many"), "many"),
        (("--threads", "0"), "--threads must be from 1 to"),
        (("--threads", "100000"), "four for each core here"),
        (("--save-every", "-1"), "--save-every must be at least 0"),
        (("--precision", "fp8"), "invalid choice 'fp8' for argument '--precision'"),
        (("--options.top-k", "2"), "--options.top-k"),
        (("--preparation-options", "side", "64"), "'side' is no NAME=VALUE, such as side=64"),
    ],
)
def test_bad_flags_are_explained(words: tuple[str, ...], message: str, capsys) -> None:
    assert main(["run", "er", *SHAPES, *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_options_below_their_lowest_are_refused(capsys) -> None:
    assert main(["run", "lucir", *SHAPES, "--options.top-k", "0"]) == 2
    assert "top_k must be at least 1, not 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "orders"), [("3", (3,)), ("0-2", (0, 1, 2)), ("4, 0-1,1", (4, 0, 1)), ("2-2", (2,))]
)
def test_lists_of_orders(text: str, orders: tuple[int, ...]) -> None:
    assert parse(["er", *SHAPES, "--orders", text]).orders == orders


@pytest.mark.parametrize("text", ["", "a", "1-b", "-1", "3-1", "1,,2", "1-2-3", "²", "9" * 5000])
def test_what_is_no_list_of_orders(text: str) -> None:
    with pytest.raises(PolarbearError, match="--orders"):
        parse_numbers("--orders", text)


def test_the_default_folder_has_no_colon_in_its_name() -> None:
    asked = parse(["polarbear.methods.er:ER", "--benchmark", "iirc-shapes-v1", "--seed", "3"])
    folder = Path("runs/iirc-shapes/polarbear.methods.er.ER/order-2-seed-3")
    assert asked.folder(2) == folder
    assert parse(["er", *SHAPES, "--out", "here"]).folder(0) == Path("here")
    several = parse(["er", *SHAPES, "--orders", "1-2", "--out", "here"])
    assert (several.orders, several.folder(1)) == ((1, 2), Path("here/order-1-seed-100"))


def test_a_failing_run_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    (taken := Path("all/order-0-seed-100")).mkdir(parents=True)
    (taken / "manifest.json").write_text("{}")
    assert main(["run", "finetune", *TINIEST, "--orders", "0-1", "--out", "all"]) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert lines[0].startswith(
        "order 0 failed: all/order-0-seed-100 is a run folder of format None"
    )
    assert lines[-2].startswith("after task 0: R_0 = ")
    assert lines[-1] == "polarbear: 1 of 2 runs failed: order 0"
    second = RunFolder.open("all/order-1-seed-100")
    assert second.finished
    assert second.manifest()["settings"]["order"] == 1
    assert (taken / "manifest.json").read_text() == "{}"


def test_a_bug_in_one_order_is_shown_with_its_traceback(monkeypatch, capsys, caplog) -> None:
    def crash(*_: object, **__: object) -> bool:
        raise RuntimeError("a bug")

    monkeypatch.setattr("polarbear.launch.runner.train", crash)
    assert main(["run", "er", *TINIEST, *ON_CPU, "--orders", "0,3"]) == 2
    assert "2 of 2 runs failed: order 0, order 3" in capsys.readouterr().err
    assert [record.exc_info[1].args for record in caplog.records] == [("a bug",)] * 2
    with pytest.raises(RuntimeError, match="a bug"):
        main(["run", "er", *TINIEST])


def test_one_thread_is_the_default_for_the_small_network_on_a_cpu(output) -> None:
    several = max(2, torch.get_num_threads())
    torch.set_num_threads(several)
    assert threads_of(parse(["er", *SHAPES, *ON_CPU, "--network", "resnet20"])) is None
    without = [word for word in TINIEST if word != "--threads"][:-1]
    output("run", "finetune", *without, *ON_CPU, "--out", "run")
    assert RunFolder.open("run").manifest()["threads"] == 1
    assert threads_of(parse(["er", *SHAPES, *ON_CPU, "--threads", "2"])) == 2


# A method of one's own.


def own_method(name: str, loss: str) -> str:
    code = f"""
        from polarbear.engine.contract.method import Method, bce

        class Mine(Method):
            summary = "for a test"

            def loss(self, batch):
                {loss}
        """
    Path(f"{name}.py").write_text(dedent(code))
    return f"{name}:Mine"


def test_an_error_of_your_own_ends_with_who_says_more_and_blocks_no_folder(output, caplog) -> None:
    faulty = own_method("faulty_for_a_test", "return self.model(batch.images)")
    hint = f"`python -c \"from polarbear.learn import check_learner; check_learner('{faulty}"
    with pytest.raises(RuntimeError, match="scalar") as caught:
        main(["run", faulty, *TINIEST, "--out", "run"])
    assert traceback.format_exception(caught.value)[-1].startswith(hint)
    assert {file.name for file in Path("run").iterdir()} == {
        *("lock", "manifest.json", "process.json")
    }
    good = "return bce(self.model(batch.images), batch.targets)"
    output("run", own_method("good_for_a_test", good), *TINIEST, "--out", "run")
    assert RunFolder.open("run").finished
    assert main(["run", faulty, *TINIEST, *ON_CPU, "--orders", "0-1", "--out", "several"]) == 2
    assert caplog.text.count(hint) == 2


def test_a_built_in_method_is_not_for_users_to_check(monkeypatch) -> None:
    monkeypatch.setattr("polarbear.launch.runner.train", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        main(["run", "er", *TINIEST])
    assert not hasattr(caught.value, "__notes__")


def test_side_by_side_the_hint_comes_once(monkeypatch, capsys) -> None:
    monkeypatch.setattr("polarbear.cli.shared.several_runs.on_gpu", lambda settings: True)
    faulty = own_method("faulty_in_a_fleet", "return float(batch.targets.mean())")
    assert main(["run", faulty, *TINIEST, "--orders", "0-1"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count(f"check_learner('{faulty}')") == 1
    assert captured.err.endswith("2 of 2 runs failed: order 0, order 1\n")
    assert captured.out.count("failed: ") == 2


# Stopping and resuming.


def cut_off(folder: str, order: int = 0) -> RunFolder:
    """A run with a checkpoint that lacks its end."""
    words = ["finetune", *TINIEST, *ON_CPU, "--order", str(order)]

    def cut(trainer: Trainer, progress: Progress) -> None:
        if progress.step > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        session.run(parse(words).settings, folder, on_step=cut, save_every=0.0)
    assert list(Path(folder, "checkpoint").iterdir())
    return RunFolder.open(folder)


def began(run: RunFolder) -> int:
    return (run.path / "manifest.json").stat().st_mtime_ns


THREE = ("run", "finetune", *TINIEST, *ON_CPU, "--out", "all")


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_same_command_again_does_what_is_left(on_gpu: bool, monkeypatch, capsys) -> None:
    monkeypatch.setattr("polarbear.cli.shared.several_runs.on_gpu", lambda settings: on_gpu)
    assert main([*THREE, "--orders", "0"]) == 0
    cut = cut_off("all/order-1-seed-100", order=1)
    before = began(cut)
    capsys.readouterr()
    assert main([*THREE, "--orders", "0-2"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == "all/order-0-seed-100 is finished: skipped"
    assert all(RunFolder(Path(f"all/order-{n}-seed-100")).finished for n in range(3))
    assert began(cut) == before
    assert captured.out.count("order-0-seed-100") == 0
    assert captured.out.count("order-1-seed-100") == captured.out.count("order-2-seed-100") == 1


def test_runs_of_other_settings_are_not_resumed(capsys) -> None:
    cut_off("all/order-0-seed-100")
    assert main([*THREE, "--orders", "0", "--batch-size", "100"]) == 2
    lines = capsys.readouterr().err.splitlines()
    sentence = "all/order-0-seed-100 holds a run already, of other settings (batch_size): choose"
    assert lines[0].startswith(f"order 0 failed: {sentence} another folder (--out DIR)")
    assert lines[1:] == ["polarbear: 1 of 1 run failed: order 0"]


def test_a_run_begun_in_python_without_options_is_the_same_one(capsys) -> None:
    words = ["agem", *TINIEST, *ON_CPU]
    settings = replace(parse(words).settings, options={})
    assert session.run(settings, "all/order-0-seed-100")
    assert main(["run", *words, "--out", "all", "--orders", "0"]) == 0
    assert "all/order-0-seed-100 is finished: skipped" in capsys.readouterr().err


def test_a_faulty_log_line_ends_no_run(capsys) -> None:
    record = logging.LogRecord("other", logging.WARNING, "", 0, "%d images", ("many",), None)
    ToStderr().handle(record)
    assert "Logging error" in capsys.readouterr().err


@pytest.mark.parametrize("on_gpu", [False, True])
def test_all_runs_below_a_folder_are_resumed(on_gpu: bool, monkeypatch, capsys) -> None:
    monkeypatch.setattr("polarbear.cli.shared.several_runs.on_gpu", lambda settings: on_gpu)
    cut = [cut_off(f"all/{n}", order=n) for n in range(3)]
    assert main(["resume", "all/1"]) == 0
    capsys.readouterr()
    assert main(["resume", "all", "all/0", "./all/1"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[0] == "all/1 is finished: skipped"
    assert all(run.finished for run in cut)
    shown = "all/{}" if on_gpu else "The run is in all/{}"
    assert [captured.out.count(shown.format(n)) for n in range(3)] == [1, 0, 1]
    assert main(["resume", "all"]) == 0
    assert capsys.readouterr().err.count("is finished: skipped") == 3


def test_what_cannot_be_resumed_does_not_stop_the_others(refused, capsys) -> None:
    cut = cut_off("all/cut")
    start_run("all/own", shapes_stream(), method="mine")
    Path("all/old").mkdir()
    Path("all/old/manifest.json").write_text('{"format": 0}')
    assert main(["resume", "all"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("all/old failed: all/old is a run folder of format 0")
    assert lines[1].startswith("all/own failed: all/own is of a loop of your own: only that loop")
    assert lines[-1] == "polarbear: 2 of 3 runs failed: all/old, all/own"
    assert cut.finished
    assert "all/own is of a loop of your own" in refused("resume", "all/own")


def test_a_device_that_is_not_here_fails_its_own_run_alone(capsys) -> None:
    moved, cut = cut_off("all/a"), cut_off("all/b")
    manifest = moved.manifest()
    manifest["settings"]["device"] = "cuda:99"
    write_json(moved.path / "manifest.json", sealed(manifest))
    assert main(["resume", "all"]) == 2
    assert capsys.readouterr().err.startswith("all/a failed: device 'cuda:99' was asked for")
    assert cut.finished


def test_one_order_too_is_done_as_far_as_it_is_left(refused, output) -> None:
    before = began(cut := cut_off("run"))
    words = ("run", "finetune", *TINIEST, *ON_CPU, "--out", "run")
    others = refused(*words, "--batch-size", "100")
    assert "run holds a run already, of other settings (batch_size): choose another" in others
    assert refused("run", "er", *TINIEST, *ON_CPU, "--out", "run").count("(method)") == 1
    first = output(*words)
    assert cut.finished
    assert began(cut) == before
    assert first.endswith("\nThe run is in run\n")
    again = output(*words)
    assert again.splitlines()[0].startswith("after")
    assert again.strip() in first


def test_a_loop_of_your_own_is_not_gone_on_with(refused) -> None:
    start_run("own", shapes_stream(), method="finetune")
    words = ("run", "finetune", *TINIEST, *ON_CPU, "--out", "own")
    assert "own is of a loop of your own: only that loop can resume it" in refused(*words)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_runs_in_use_are_worth_another_try(on_gpu: bool, monkeypatch, capsys, caplog) -> None:
    monkeypatch.setattr("polarbear.cli.shared.several_runs.on_gpu", lambda settings: on_gpu)
    in_use, other = cut_off("all/order-0-seed-100"), cut_off("all/order-1-seed-100", order=1)
    with in_use.held():
        assert main([*THREE, "--orders", "0-1"]) == 75
    assert other.finished
    assert "order-0-seed-100 is being trained into" in capsys.readouterr().err + caplog.text
    assert main([*THREE, "--orders", "0-1"]) == 0


def test_a_stopped_run_is_resumed_to_the_same_scores(unbroken: RunFolder, capsys) -> None:
    command = [*RUN, "--out", "cut"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    epochs, end = Path("cut/epochs.jsonl"), time.monotonic() + 60
    while not epochs.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "`polarbear resume cut` goes on" in err
    assert not RunFolder.open("cut").finished
    assert main(["runs", "."]) == 0
    assert capsys.readouterr().out.split()[-2:] == ["stopped", "cut"]

    assert main(["resume", "cut"]) == 0
    captured = capsys.readouterr()
    assert "after task 1: R_1 = " in captured.err
    table = printed(unbroken, "out").rsplit("\n", 2)[0]
    assert captured.out == f"{table}\nThe run is in cut\n"
    for name in ("scores.jsonl", "predictions/after_1.npz"):
        assert (Path("cut") / name).read_bytes() == (unbroken.path / name).read_bytes()


def test_a_finished_run_is_only_shown(unbroken: RunFolder, output) -> None:
    text = output("resume", str(unbroken.path))
    assert "is finished: nothing to do" in text
    assert f"{unbroken.table().r[1]:.3f}" in text


def test_resume_refuses_what_is_no_run(refused, tmp_path: Path) -> None:
    assert "which run? `polarbear runs` lists them" in refused("resume")
    assert "is no run folder: it has no manifest.json" in refused("resume", str(tmp_path))
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    assert "run folder of format 99; this polarbear reads formats 1 and 2" in refused("resume", ".")


# Progress.


class Heard:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, str, int, int]] = []
        self.said: list[str] = []

    def show(self, place: str, numbers: str, done: int, total: int) -> None:
        self.shown.append((place, numbers, done, total))

    def say(self, line: str) -> None:
        self.said.append(line)


@cache
def shapes_stream() -> Stream:
    return load("iirc-shapes")


def trainer_of(method: str, **changes: object) -> Trainer:
    settings = settings_for(method, "iirc-shapes", device="cpu", **changes)
    return Trainer(shapes_stream(), build_learner(settings, shapes_stream()), ())


def test_the_work_of_a_run_is_known_beforehand(unbroken: RunFolder) -> None:
    work = Workload.of(trainer_of("er", epochs=1, tasks=2))
    by_epoch = [line["images"] for line in unbroken.lines("epochs")]
    assert [work.images[task] for task in (0, 0, 1)] == by_epoch
    assert (work.epochs, work.total) == ((2, 1), sum(by_epoch))


def test_memory_and_complete_labels_are_reckoned_with() -> None:
    stream = shapes_stream()
    own = [len(task.train) for task in stream]
    assert Workload.of(trainer_of("finetune", tasks=3)).images == tuple(own[:3])
    assert Workload.of(trainer_of("er-infinite", tasks=3)).images[2] == sum(own[:3])
    joint = Workload.of(trainer_of("incremental-joint", tasks=3))
    assert joint.images[2] == len(stream.train(after=2)) < sum(own[:3])
    shared = Workload.of(trainer_of("er", memory_total=100, tasks=3))
    assert shared.images[1] == own[1] + 17 * 6  # 100 images are 17 for each of 6 classes
    assert Workload.of(trainer_of("er", memory_per_class=10**6)).images[1] == own[0] + own[1]
    first_alone = Workload.of(trainer_of("ncm", epochs=3, first_task_factor=1.0, tasks=3))
    assert (first_alone.epochs, first_alone.total) == ((3, 0, 0), 3 * own[0])


def test_the_pace_of_late_and_the_time_left() -> None:
    pace = Pace()
    assert str(pace.left(100)) == str(pace.speed) == "nan"
    pace.update(-50.0, 0)  # images are decoded until 0
    for second in range(0, 101, 10):
        pace.update(float(second), 5 * second)
    pace.update(110.0, 600)
    assert pace.speed == pytest.approx((600 - 450) / 20)
    assert pace.left(1200) == pytest.approx(600 / (600 / 110))


def test_each_look_tells_task_epoch_rate_score_speed_and_time_left(monkeypatch) -> None:
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_LOOKS", 0.0)
    heard = Heard()
    seen, trainer = Watch(heard), trainer_of("finetune", epochs=1, tasks=2, batch_size=200)
    trainer.recorders = (seen,)
    for progress in trainer.steps():
        seen(trainer, progress)
    places = list(dict.fromkeys(place for place, *_ in heard.shown))
    assert places == [
        "task 0 (0–1) epoch 1/2",
        "task 0 (0–1) epoch 2/2",
        "task 1 (0–1) epoch 1/1",
    ]
    for _, numbers, so_far, total in heard.shown[1:]:
        left = r", (\d+ s|\d+ min) left" if so_far < total else ""
        assert re.fullmatch(r"rate 1, valid (0\.\d{3}|–), [\d,]+ images/s" + left, numbers)
    assert "valid –" in heard.shown[0][1]
    assert "valid 0." in heard.shown[-1][1]
    done = [done for *_, done, _ in heard.shown]
    assert done == sorted(done)
    assert done[-1] == heard.shown[-1][3] == Workload.of(trainer).total
    assert [line.split(":")[0] for line in heard.said] == ["after task 0", "after task 1"]


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys) -> None:
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_LOOKS", 0.0)
    words = ["run", "finetune", *TINIEST, *ON_CPU, "--batch-size", "400", "--out", "run"]
    assert main(words) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("finetune on iirc-shapes, order 0, seed 100, 1 task, on cpu, ")
    assert lines[0].endswith(", fp32, in run")
    assert lines[1].startswith("epochs 1, batch size 400, learning rate 1.0, network small; not as")
    assert lines[1].endswith(" batch size 400")
    # One line of the epoch, however many steps it has.
    assert [line.split(",")[0] for line in lines[2:-1]] == ["task 0 (0–0) epoch 1/1"]
    assert lines[-1].startswith("after task 0: R_0 = ")


def test_long_work_before_the_first_step_is_told_once(monkeypatch, capsys) -> None:
    with watch.watch():
        progress_log.info("by the log's handlers alone, as those of the command line")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress_log, "propagate", False)  # as in a script, where there are none
    with watch.watch():
        progress_log.info("features of train images: 1 of 2")
    progress_log.info("to nobody")
    assert capsys.readouterr().err == "features of train images: 1 of 2\n"


def test_a_log_has_a_line_per_epoch_in_half_a_minute(monkeypatch, capsys) -> None:
    now = [0.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    lines = Lines(Console(stderr=True), runs=2)
    for second, place in enumerate(["epoch 1"] * 100 + ["epoch 2"] * 1300 + ["epoch 3"] * 10):
        now[0] = float(second)
        lines.show(place, f"{second} s", 0, 1)
    assert capsys.readouterr().err.splitlines() == [
        "epoch 1, 60 s",
        "epoch 2, 120 s",
        "epoch 2, 1320 s",  # an epoch that takes long is not silent all the while
        "epoch 3, 1400 s",
    ]


@pytest.mark.parametrize("on_gpu", [False, True])
def test_lines_of_several_runs_say_whose_they_are(on_gpu: bool, monkeypatch, capsys) -> None:
    monkeypatch.setattr("polarbear.cli.shared.several_runs.on_gpu", lambda settings: on_gpu)
    assert main([*THREE, "--orders", "0-1", "--memory-per-class", "5"]) == 0
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert {line.split(":")[0] for line in lines} == {"finetune order 0", "finetune order 1"}
    for order in (0, 1):
        own = [line.partition(": ")[2] for line in lines if f" order {order}: " in line]
        assert own[0].startswith(f"finetune on iirc-shapes, order {order}, seed 100, 1 task, on ")
        assert own[0].endswith(f", in all/order-{order}-seed-100")
        assert own[1].endswith("; not as in the preset: epochs 1, first task factor 1.0, memory 5")
        assert own[-1].startswith("after task 0: R_0 = 0.")
    ends = [RunFolder(Path(f"all/order-{n}-seed-100")).table().r[0] for n in (0, 1)]
    half = stats.t.ppf(0.975, 1) * stats.sem(ends)
    told = f"{np.mean(ends):.3f} ± {half:.3f}"
    assert captured.out.splitlines()[-1] == (
        f"finetune on iirc-shapes-v1: R_0 = {told}, mean of R_0 to R_0 = {told} "
        "(95 %, n = 2; orders 0, 1, seed 100)"
    )
    # Finished ones count, whoever trained them.
    assert main([*THREE, "--orders", "0-2", "--memory-per-class", "5"]) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("(95 %, n = 3; orders 0–2, seed 100)\n")
    assert not any(line.startswith("finetune order") for line in captured.err.splitlines())


def test_runs_of_the_same_order_are_told_apart_by_their_folders(capsys) -> None:
    for name in ("a", "b"):
        cut_off(f"all/{name}")
    assert main(["resume", "all"]) == 0
    ends = [line for line in capsys.readouterr().err.splitlines() if "R_0" in line]
    assert [line.split(":")[0] for line in ends] == ["all/a", "all/b"]


@pytest.mark.parametrize("columns", [60, 80])
def test_a_terminal_gets_live_lines(columns: int, monkeypatch) -> None:
    file = io.StringIO()
    screen = Console(file=file, force_terminal=True, width=columns, highlight=False)
    monkeypatch.setattr(watch, "error_console", lambda: screen)
    with watch.watch() as seen:
        numbers = "rate 0.001, valid 0.412, 12,345 images/s, 21 h 10 min left"
        seen.display.show("task 21 (0–21) epoch 120/140", numbers, 3, 4)
        seen.scores(ScoreRecord(20, "test", {"pw_jaccard": 0.25}, {}))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())
    assert "after task 20: R_20 = 0.250\n" in text
    assert "task 21 (0–21) epoch 120/140" in text
    assert numbers in " ".join(text.replace("━", " ").replace("╺", " ").split())
    assert "…" not in text


def test_ctrl_c_leaves_its_line_on_a_terminal() -> None:
    ours, theirs = pytest.importorskip("pty").openpty()
    command, surroundings = [*RUN, "--out", "cut"], os.environ | {"TERM": "xterm"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=surroundings)
    os.close(theirs)
    text, asked = b"", False
    with suppress(OSError):  # Linux says so when the other side has closed
        while part := os.read(ours, 4096):
            text += part
            if not asked and Path("cut/epochs.jsonl").exists():
                process.send_signal(signal.SIGINT)
                asked = True
    os.close(ours)
    assert process.wait(timeout=60) == 130
    # What moves the cursor or erases a line must not come after the line in its own row.
    lines = re.sub(rb"\x1b\[[0-9;?]*m", b"", text).decode().split("\r\n")
    assert any("stopped " in line and "resume cut` goes on" in line for line in lines)
    last = next(line for line in reversed(lines) if "stopped " in line)
    assert re.search(r"(^|\x1b\[2K)stopped [^\x1b\r]*`polarbear resume cut` goes on$", last)


# polarbear methods


def test_methods_lists_all_with_what_they_need(output) -> None:
    lines = json.loads(output("methods", "--json"))
    assert [line["name"] for line in lines] == list(METHODS)
    lucir = next(line for line in lines if line["name"] == "lucir")
    assert (lucir["replay"], lucir["keep"], lucir["head"]) == ("mixed", "last", "cosine")
    table = output("methods")
    assert re.search(r"^agem +reference +last +linear +projects the gradient", table, re.MULTILINE)
    assert max(map(len, table.splitlines())) <= 80


def test_methods_of_installed_packages_are_listed(monkeypatch, output) -> None:
    found = [
        EntryPoint("mine", "polarbear.methods.er:ER", catalogue.ENTRY_POINTS),
        EntryPoint("broken", "no_such_module:Mine", catalogue.ENTRY_POINTS),
    ]
    monkeypatch.setattr(catalogue, "entry_points", lambda group: found)
    text = output("methods")
    assert re.search(r"^mine +mixed +best +linear +replays random", text, re.MULTILINE)
    assert re.search(r"^broken +– +– +–", text, re.MULTILINE)
    assert "no module 'no_such_module'" in text


NO_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
from polarbear.cli import main

sys.exit(main(sys.argv[1:]))
"""


def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", NO_TORCH, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_torch_methods_and_runs_work_and_run_says_what_to_install(
    unbroken: RunFolder,
) -> None:
    listed = without_torch("methods")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "replays random stored images" in listed.stdout
    assert f"needs PyTorch: {install_line('torch')}" in listed.stdout
    assert "finished" in without_torch("runs", str(unbroken.path)).stdout
    assert without_torch("run", "--help").returncode == 0
    refusal = without_torch("run", "er", *SHAPES)
    assert refusal.returncode == 2
    assert f"needs PyTorch: {install_line('torch')}" in refusal.stderr
    Path("manifest.json").write_bytes((unbroken.path / "manifest.json").read_bytes())
    refusal = without_torch("resume", ".")
    assert f"learning needs torch: {install_line('torch')}" in refusal.stderr


# polarbear runs


def test_runs_are_listed(unbroken: RunFolder, output, tmp_path: Path) -> None:
    other = RunFolder.create("all/new", unbroken.manifest())
    (tmp_path / "all/old").mkdir()
    (tmp_path / "all/old/manifest.json").write_text('{"format": 0}')
    (tmp_path / "all/done").symlink_to(unbroken.path)
    for name in ("manifest.json", "scores.jsonl", "finished.json"):
        (target := tmp_path / "all/done-copy" / name).parent.mkdir(exist_ok=True)
        target.write_bytes((unbroken.path / name).read_bytes())
    lines = {Path(line["path"]).name: line for line in json.loads(output("runs", "all", "--json"))}
    done = lines["done-copy"]
    assert (done["method"], done["benchmark"]) == ("er", "iirc-shapes")
    assert (done["order"], done["seed"], done["done"], done["tasks"]) == (0, 7, 2, 2)
    assert (done["score"], done["state"]) == (unbroken.table().r[1], "finished")
    new = lines[other.path.name]
    assert (new["done"], new["score"], new["state"]) == (0, None, "stopped")
    assert (lines["old"]["state"], lines["old"]["method"]) == ("unreadable", None)
    assert "format 0" in lines["old"]["problem"]
    rows = [line.split() for line in output("runs", "all").splitlines()]
    score = f"{unbroken.table().r[1]:.3f}"
    assert ["er", "iirc-shapes", "0", "7", "2/2", score, "finished", "all/done-copy"] in rows
    assert ["er", "iirc-shapes", "0", "7", "0/2", "–", "stopped", "all/new"] in rows
    assert [*["–"] * 6, "unreadable", "all/old"] in rows


def test_folders_of_listed_runs_are_whole_on_a_narrow_screen(
    unbroken: RunFolder, output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    deep = "a-method-with-a-rather-long-name/order-0"
    RunFolder.create(tmp_path / "all" / deep, unbroken.manifest())
    assert deep in output("runs", "all")


def test_no_runs(refused, tmp_path: Path, output) -> None:
    assert "there is no folder runs: `polarbear run METHOD` makes one" in refused("runs")
    assert "there is no run in ." in refused("runs", ".")
    assert json.loads(output("runs", ".", "--json")) == []
