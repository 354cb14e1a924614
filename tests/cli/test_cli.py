"""The commands: what they print, their exit codes, and their errors in one line."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import polarbear
from polarbear.base.errors import DataError, install_line
from polarbear.base.out_of_memory import OutOfMemoryError
from polarbear.benchmark.source import Source
from polarbear.cli import COMMANDS, main
from polarbear.cli.shared import progress
from polarbear.cli.shared.exit_code import exit_code
from polarbear.launch.gpu_memory import held_by_others
from polarbear.named.registry import find, nominal_stream
from polarbear.score.predictions import save_predictions


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No data folder from outside, no colours forced from outside, 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("POLARBEAR_DATA", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def shell(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "polarbear", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def output(capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str) -> str:
        assert main(arguments) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return run


# The real program.


def test_the_program_prints_plain_text_when_piped() -> None:
    done = shell("describe", "iirc-cifar")
    assert (done.returncode, done.stderr) == (0, "")
    assert "46,160" in done.stdout
    assert "\x1b" not in done.stdout
    tables = done.stdout.split("\n\n", 1)[1]
    assert max(map(len, tables.splitlines())) <= 80


def test_the_program_refuses_in_one_line_without_a_traceback() -> None:
    done = shell("describe", "iirc-cifr")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "polarbear: unknown benchmark 'iirc-cifr': did you mean 'iirc-cifar'?"
    )
    assert done.stderr.count("\n") == 1


def test_help_needs_nothing_heavy() -> None:
    code = (
        "import sys, polarbear.cli; code = polarbear.cli.main(['--help']);"
        "ours = {f'polarbear.cli.commands.{name}' for name in ('score', 'describe')};"
        "heavy = {'torch', 'PIL', 'pyarrow', *ours};"
        "sys.exit(code or ', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for name, summary in COMMANDS.items():
        assert name in done.stdout
        assert summary in done.stdout


def test_the_package_itself_needs_no_tyro_and_no_rich() -> None:
    code = "import sys, polarbear; sys.exit(bool({'tyro', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_reader_that_leaves_early_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        command = [sys.executable, "-m", "polarbear", "describe", "iirc-cifar", "--json"]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == ""


# Main.


def test_no_argument_gives_the_help(output) -> None:
    assert output() == output("--help") == output("-h")
    assert output("--version") == f"polarbear {polarbear.__version__}\n"


def test_unknown_command_names_the_nearest(refused) -> None:
    assert "unknown command 'descibe': did you mean 'describe'?" in refused("descibe", "iirc-cifar")


def test_unknown_option_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "iirc-cifar", "--ordr", "1"]) == 2
    assert "--order INT" in capsys.readouterr().err


def test_missing_argument_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe"]) == 2
    assert "NAME" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, output) -> None:
    assert f"usage: polarbear {name}" in output(name, "--help")


@pytest.mark.parametrize("missing", ["tyro", "rich"])
def test_missing_packages_are_named(missing: str, monkeypatch, refused) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert install_line("cli") in refused("benchmarks")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "stopped"),
        (DataError("the [red]file[/] is cut"), 2, "the [red]file[/] is cut"),
        (PermissionError(13, "Permission denied", "data"), 2, "data: permission denied; choose"),
        (OSError(28, "No space left on device"), 75, "polarbear: no space left on device; make"),
        (OSError(5, "Input/output error", b"a/b"), 75, "polarbear: a/b: input/output error\n"),
        (OSError("cut off"), 2, "polarbear: cut off"),
    ],
)
def test_exit_codes(error, code: int, message: str, monkeypatch, capsys) -> None:
    def fail(_: list[str]) -> None:
        raise error

    monkeypatch.setattr("polarbear.cli._run", fail)
    assert main(["benchmarks"]) == code
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


GIB = 2**30
NO_MEMORY = "out of memory (CUDA out of memory. Tried to allocate 2 GiB. GPU 1 has a total capacity"


@pytest.mark.parametrize(
    ("message", "free", "own", "code"),
    [
        (NO_MEMORY, 1, 5, 75),  # 74 of 80 GiB are others'
        (NO_MEMORY, 1, 78, 2),  # the run itself is too large
        ("out of memory (MemoryError)", 1, 5, 2),
    ],
)
def test_a_gpu_that_others_fill_is_worth_another_try(
    message: str, free: int, own: int, code: int, monkeypatch
) -> None:
    asked: list[int] = []

    def memory(number: int) -> tuple[int, int]:
        asked.append(number)
        return free * GIB, 80 * GIB

    monkeypatch.setattr("torch.cuda.mem_get_info", memory)
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda number: own * GIB)
    assert exit_code(OutOfMemoryError(message)) == code
    assert asked == ([1] if "GPU" in message else [])


def test_without_a_gpu_nobody_else_holds_its_memory() -> None:
    assert not held_by_others(99)


# polarbear benchmarks


def test_benchmarks(output) -> None:
    table = output("benchmarks")
    lines = json.loads(output("benchmarks", "--json"))
    for benchmark, line in zip(polarbear.benchmarks(), lines, strict=True):
        assert benchmark.id in table
        assert line["summary"] == benchmark.summary
    cifar = next(line for line in lines if line["name"] == "iirc-cifar")
    assert (cifar["version"], cifar["tasks"], cifar["classes"], cifar["orders"]) == (1, 22, 115, 10)
    full = next(line for line in lines if line["name"] == "iirc-imagenet-full")
    assert (full["tasks"], full["classes"], full["orders"]) == (35, 1083, 5)


# polarbear describe


def test_describe_has_the_papers_tables_without_the_data(output) -> None:
    text = output("describe", "iirc-cifar")
    rows = [line.split() for line in text.splitlines()]
    assert ["with", "duplicates", "46,160", "5,770"] in rows
    assert ["without", "duplicates", "40,000", "5,000", "5,000", "10,000"] in rows
    assert ["15", "77", "23", "115"] in rows
    assert ["vehicles", "task", "0", "8", "1,280", "320"] in rows
    assert ["none", "(23", "classes)", "400"] in rows
    assert ["0", "10", "10", "10", "8,160", "1,020", "2,550", "5,100"] in rows
    assert "television, spider, shrew, mountain, hamster" in text
    assert "small mammals (5)" in text
    assert ["leaves", "with", "a", "superclass", "77", "320", "40", "25%"] in rows
    assert ["leaves", "without", "23", "400", "50", "0%"] in rows
    note = text.splitlines()[1]
    assert note.startswith("Counts are the official ones; the data were not read: ")


def test_describe_tells_that_a_second_version_leaks_nothing(output) -> None:
    text = output("describe", "iirc-cifar-v2")
    assert text.startswith("iirc-cifar-v2, order 0: ")
    rows = [line.split() for line in text.splitlines()]
    assert ["superclasses", "15", "320", "40", "0%"] in rows
    assert ["leaves", "with", "a", "superclass", "77", "320", "40", "0%"] in rows
    assert ["leaves", "without", "23", "320", "40", "0%"] in rows


def test_describe_json(output) -> None:
    content = json.loads(output("describe", "iirc-cifar", "--order", "3", "--json"))
    assert (content["benchmark"], content["version"], content["order"]) == ("iirc-cifar", 1, 3)
    assert content["splits"] == {
        "train_with_duplicates": 46160,
        "valid_with_duplicates": 5770,
        "train": 40000,
        "valid": 5000,
        "post_valid": 5000,
        "test": 10000,
    }
    assert [leak["repeated"] for leak in content["leaks"]] == [0, 0.25, 0]
    assert content["classes"] == {"superclasses": 15, "subclasses": 77, "alone": 23, "total": 115}
    assert "the data were not read" in content["note"]
    assert content["tasks"][0]["classes"] == list(nominal_stream("iirc-cifar", 3)[0].classes)


def test_describe_uses_the_data_where_they_are(output, cifar_root: Path) -> None:
    content = json.loads(output("describe", "iirc-cifar", "--root", str(cifar_root), "--json"))
    assert content["note"] is None
    assert content["splits"]["train_with_duplicates"] == 46160


def test_describe_imagenet_without_the_data_tells_classes(output) -> None:
    text = output("describe", "iirc-imagenet-full")
    assert text.splitlines()[1].startswith("Classes only, since counting the images needs the data")
    assert ["85", "788", "210", "1,083"] in [line.split() for line in text.splitlines()]
    assert "bird" in text
    assert "n01518878" not in text
    assert "ostrich" in text
    content = json.loads(output("describe", "iirc-imagenet-full", "--json"))
    assert content["splits"] is None
    bird = next(size for size in content["class_sizes"] if size["name"] == "bird")
    assert (bird["subclasses"], bird["train"]) == (58, None)


def test_describe_the_embedded_data(output) -> None:
    assert "not read" not in output("describe", "iirc-shapes-v1", "--order", "4")


def test_brackets_in_names_are_shown(output, monkeypatch) -> None:
    tree = polarbear.Hierarchy.from_children({"car [old]": ["[b]taxi", "van"]})
    mine = replace(
        find("iirc-shapes"),
        name="mine",
        hierarchy=lambda: tree,
        orders=lambda: (polarbear.Schedule.of([["car [old]"], ["[b]taxi", "van"]]),),
        open_source=lambda root, hierarchy: no_data(),
    )
    monkeypatch.setitem(sys.modules["polarbear.named.registry"]._REGISTRY, "mine", mine)
    text = output("describe", "mine")
    assert "car [old] (2)" in text
    assert "[b]taxi, van" in text


def no_data() -> Source:
    raise DataError("no data. Get some")


def test_describe_an_order_out_of_range(refused) -> None:
    assert "iirc-cifar has no order 10: its 10 published orders are 0 to 9" in refused(
        "describe", "iirc-cifar", "--order", "10"
    )


# polarbear score


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    stream = polarbear.load("iirc-shapes", 1)
    truth = {after: stream.test(after).targets for after in range(len(stream))}
    return save_predictions(tmp_path_factory.mktemp("oracle") / "oracle.npz", stream, truth)


def altered(path: Path, folder: Path, **arrays: object) -> str:
    """A copy of the file with some arrays replaced, or left out where None."""
    with np.load(path) as content:
        kept = {**content, **{k: np.asarray(v) for k, v in arrays.items() if v is not None}}
    for key, value in arrays.items():
        if value is None:
            del kept[key]
    np.savez(folder / "altered.npz", **kept)
    return str(folder / "altered.npz")


def test_an_oracle_scores_one_everywhere(output, oracle: Path) -> None:
    content = json.loads(output("score", str(oracle), "--json"))
    assert (content["name"], content["order"], content["split"]) == ("iirc-shapes-v1", 1, "test")
    assert content["scores"]["pw_jaccard"] == [1.0] * 7
    assert content["scores"]["implication"][-1] == 1.0
    assert content["scores"]["sibling_error"][-1] == 0.0
    assert content["forgetting"] == [None] + [0.0] * 6
    for j, row in enumerate(content["by_task"]["pw_jaccard"]):
        assert row == [1.0] * (j + 1) + [None] * (6 - j)


def test_score_prints_a_table(output, oracle: Path) -> None:
    text = output("score", str(oracle))
    rows = [line.split() for line in text.splitlines()]
    assert ["task", "6", "36", *["1.000"] * 5, "0.000", "1.000", "1.000"] in rows
    assert ["task", "0", "6", "1.000", "1.000", "–", "1.000", "–", "–", "–", "1.000"] in rows
    assert "R_jk" not in text
    assert max(map(len, text.splitlines())) <= 80
    triangle = output("score", str(oracle), "--table").split("R_jk in hundredths")[1]
    assert triangle.splitlines()[-1].split() == ["6", *["100"] * 7]


def test_scores_of_another_tool_with_a_threshold(output, oracle: Path, tmp_path: Path) -> None:
    with np.load(oracle) as content:
        logits = {f"after_{j}": np.where(content[f"after_{j}"], 2.5, -1.5) for j in range(7)}
    np.savez(tmp_path / "logits.npz", **logits)
    where = (str(tmp_path / "logits.npz"), "--benchmark", "iirc-shapes", "--order", "1")
    content = json.loads(output("score", *where, "--threshold", "-0.5", "--json"))
    assert content["scores"]["exact_match"] == [1.0] * 7
    content = json.loads(output("score", *where, "--threshold", "3", "--json"))
    assert content["scores"]["exact_match"] == [0.0] * 7


def test_score_of_post_task_validation(output, tmp_path: Path) -> None:
    stream = polarbear.load("iirc-shapes")
    truth = {j: stream.post_valid(j).targets for j in range(7)}
    path = save_predictions(tmp_path / "p.npz", stream, truth, split="post_valid")
    content = json.loads(output("score", str(path), "--json"))
    assert content["split"] == "post_valid"
    assert content["scores"]["pw_jaccard"] == [1.0] * 7


def test_score_refuses_what_does_not_fit(refused, oracle: Path, tmp_path: Path) -> None:
    assert "there is no file none.npz" in refused("score", "none.npz")
    (tmp_path / "text.npz").write_text("no arrays")
    assert "cannot be read as predictions" in refused("score", "text.npz")
    short = altered(oracle, tmp_path, after_2=np.zeros((3, 16), bool))
    assert "after_2 has the shape (3, 16); due are " in refused("score", short)
    assert "lacks after_5: a score needs" in refused(
        "score", altered(oracle, tmp_path, after_5=None)
    )
    scores = altered(oracle, tmp_path, after_3=np.zeros((1, 1)))
    assert "after_3 has the shape" in refused("score", scores)


def test_score_needs_to_know_the_benchmark(refused, oracle: Path, tmp_path: Path) -> None:
    nameless = altered(oracle, tmp_path, benchmark=None)
    assert "does not say which benchmark it is for: add --benchmark" in refused("score", nameless)
    assert "did you mean 'iirc-shapes'" in refused("score", nameless, "--benchmark", "iirc-shape")
    orderless = altered(oracle, tmp_path, order=None)
    assert "does not say which order it is for: add --order" in refused("score", orderless)
    wrong = altered(oracle, tmp_path, benchmark="iirc-shpes")
    assert "unknown benchmark 'iirc-shpes'" in refused("score", wrong)


def test_score_refuses_a_contradiction(refused, oracle: Path) -> None:
    assert "is for order 1, but --order asks for 2" in refused("score", str(oracle), "--order", "2")
    other = refused("score", str(oracle), "--benchmark", "iirc-cifar")
    assert "is for benchmark iirc-shapes-v1, but --benchmark asks for iirc-cifar-v1" in other
    assert "is for split test" in refused("score", str(oracle), "--split", "post_valid")


def test_the_wrong_order_is_noticed_by_the_rows(refused, oracle: Path, tmp_path: Path) -> None:
    wrong = altered(oracle, tmp_path, order=0)
    message = refused("score", wrong)
    assert "after_" in message or "rows_" in message


def test_score_without_the_data_says_how_to_get_them(refused, tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", after_0=np.zeros((1, 1), bool), benchmark="iirc-cifar", order=0)
    assert "polarbear fetch cifar100 --root" in refused("score", "p.npz")


# polarbear fetch, polarbear pack


def test_fetch_passes_root_and_address_on(monkeypatch, capsys, tmp_path: Path) -> None:
    calls: list[tuple[Path, str]] = []

    def fetch(root: Path, url: str, *, progress) -> Path:
        calls.append((root, url))
        progress(0, 10_000_000)
        progress(10_000_000, 10_000_000)
        return root / "cifar-100-python"

    monkeypatch.setattr("polarbear.cli.commands.fetch.fetch_cifar100", fetch)
    url = "http://localhost/c.tar.gz"
    assert main(["fetch", "cifar100", "--root", "here", "--url", url]) == 0
    captured = capsys.readouterr()
    assert calls == [(Path("here"), url)]
    assert captured.out == "cifar100 is complete and verified in here/cifar-100-python\n"
    assert captured.err == "cifar100: 10.0 MB of 10.0 MB\n"


def test_fetch_refuses(refused) -> None:
    assert "did you mean 'cifar100'? Valid: cifar100" in refused("fetch", "cifar10")
    assert "did you mean 'cifar100'?" in refused("fetch", "iirc-cifar")
    for name in ("imagenet", "ImageNet", "iirc-imagenet-lite"):
        message = refused("fetch", name)
        assert f"{name} cannot be fetched" in message
        assert "`polarbear pack imagenet --root DIR --out DIR`" in message
    assert "only http:// and https://" in refused("fetch", "cifar100", "--url", "ftp://x/y")


def test_pack_refuses(refused) -> None:
    assert "Valid: imagenet" in refused("pack", "imagnet", "--out", "packed")
    assert "no folder nowhere/train" in refused(
        "pack", "imagenet", "--root", "nowhere", "--out", "p"
    )


def test_pack_and_describe_real_images(imagenet_root: Path, capsys, tmp_path: Path) -> None:
    where = ["--root", str(imagenet_root), "--out", "packed", "--size", "32"]
    assert main(["pack", "imagenet", *where]) == 0
    captured = capsys.readouterr()
    assert "packed 6,000 images into" in captured.out
    assert "packing imagenet: 6,000 of 6,000\n" in captured.err
    assert "has not all images: 4,000 training images of 1,281,167" in captured.err
    assert main(["describe", "iirc-imagenet-full", "--root", "packed", "--partial", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["note"].startswith("Partial data: 4,000 training images of 1,281,167")
    assert content["splits"]["test"] == 2 * 998


# Progress


def test_lines_come_now_and_then_and_at_the_end(monkeypatch, capsys) -> None:
    now = iter(np.arange(0.0, 1000.0, 3.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    with progress.progress("packing") as report:
        for done in (0, 100, 200, 300):
            report(done, 300)
    assert capsys.readouterr().err.splitlines() == [
        "packing: 100 of 300, about 6 s left",
        "packing: 300 of 300",
    ]


def test_progress_of_unknown_length(monkeypatch, capsys) -> None:
    now = iter(np.arange(0.0, 1000.0, 9.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(now)))
    with progress.progress("file", in_bytes=True) as report:
        report(2_500_000, None)
    assert capsys.readouterr().err == "file: 2.5 MB\n"


def test_a_terminal_gets_a_bar(monkeypatch, capsys) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.progress("file", in_bytes=True) as report:
        report(5, 10)
    assert "\x1b[" in capsys.readouterr().err
