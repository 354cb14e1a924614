"""Run folders, results and predictions: how the commands read them."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from engine_run import tiny
from hard.benchmark_formats import make_benchmark
from hard.forked import forked
from hard.reading import Reading, TookOthersError, digest, listening, printed, printing
from polarbear.cli.commands.compare import compare
from polarbear.cli.commands.runs import runs
from polarbear.cli.commands.score import score
from polarbear.cli.commands.summarise import summarise
from polarbear.launch.runner import resume, run
from polarbear.methods.presets import settings_for
from polarbear.named.registry import load
from polarbear.report.build import build_report
from polarbear.report.read.answers import answers
from polarbear.report.read.runs import read_runs
from polarbear.runs.folder import RunFolder
from polarbear.score.predictions import save_predictions
from polarbear.score.table import ScoreTable

# Run folders: a whole run beside the one that is mutated.


def make_runs(base: Path) -> None:
    """Two finished runs of the engine on a benchmark that is read in milliseconds."""
    make_benchmark(base)

    def train() -> int:
        for order, name in enumerate(("bad", "good")):
            settings = tiny("er", epochs=1, tasks=2, keep_scores=True, order=order)
            settings = replace(settings, benchmark=str(base / "mine"))
            run(settings, base / "runs" / name, save_every=0.0)
        return 0

    child = forked(train, base / "log")
    if child.wait() != 0:
        raise RuntimeError(child.said())


def make_unfinished(base: Path) -> None:
    make_runs(base)
    (base / "runs" / "bad" / "finished.json").unlink()


def make_one_checkpoint(base: Path) -> None:
    make_unfinished(base)
    for file in sorted((base / "runs" / "bad" / "checkpoint").iterdir())[:2]:
        file.unlink()


def list_runs(base: Path) -> Reading:
    with printing() as out, listening() as said:
        runs(base / "runs", json=True)
        lines = {Path(line["path"]).name: line for line in json.loads(printed(out))}
        runs(base / "runs")
    if lines.get("good", {}).get("state") != "finished":
        raise TookOthersError(f"runs: {lines.get('good')}")
    bad = lines.get("bad", {"problem": "not listed"})
    return Reading(
        str(bad), (*said, *([f"{base}/runs/bad: {bad['problem']}"] * bool(bad["problem"])))
    )


def read_for_report(base: Path) -> Reading:
    with listening() as said:
        found = read_runs(base / "runs")
    by_name = {one.path.name: one for group in found.groups for one in group.runs}
    if "good" not in by_name:
        raise TookOthersError(f"read_runs: {sorted(by_name)}")
    bad = by_name.get("bad")
    if bad is None:
        return Reading(None, tuple(said))
    scores = {name: values.tolist() for name, values in bad.scores.items()}
    tables = {name: digest(values) for name, values in bad.by_task.items()}
    asked = (bad.method, bad.benchmark, bad.order, bad.seed, bad.settings, bad.classes)
    return Reading({"scores": scores, "tables": str(tables), "asked": str(asked)}, tuple(said))


def finite_scores(content: Any) -> bool:
    if content is None or "scores" not in content:
        return True
    return not any(np.isinf(values).any() for values in content["scores"].values())


def summarised(base: Path) -> Reading:
    out = base / "out"
    shutil.rmtree(out, ignore_errors=True)
    with printing() as words, listening() as said:
        summarise(base / "runs", out=out, overwrite=True)
    files = {str(file.relative_to(out)): file for file in out.rglob("*.json")}
    good = files.pop("mine/er/order-1.json", None)
    if good is None:
        raise TookOthersError(f"summarise: {sorted(files)}")
    content = [json.loads(file.read_text()) for file in files.values()]
    for summary in content:
        summary["seconds"] = None
    lines = [line for line in printed(words).decode().splitlines() if str(base / "runs") in line]
    return Reading(content, (*said, *lines))


def drawn(base: Path) -> Reading:
    """A whole report but for most figures."""
    with printing(), listening() as said:
        found = read_runs(base / "runs")
        made = build_report(found, base / "report", formats=("svg",), only=("average-pw-js",))
    if found.groups and "good" not in {one.path.name for g in found.groups for one in g.runs}:
        raise TookOthersError("report")
    return Reading(sorted(one.name for one in made.made), tuple(said))


def answered(base: Path) -> Reading:
    """Predictions as the report's figures get them."""
    with listening() as said:
        by_name = {one.path.name: one for g in read_runs(base / "runs").groups for one in g.runs}
        found = answers(by_name["bad"], 1)
    return Reading(digest(found.predicted), tuple(said))


def scores_kept(base: Path) -> Reading:
    found = RunFolder(base / "runs" / "bad").raw(1)
    return Reading(None if found is None else digest(found))


class EnoughError(Exception):
    """The first step is done."""


def resumed(base: Path) -> Reading:
    """Where a run goes on, in a copy, and its weights after the first step there."""
    folder = base / "tried"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base / "runs" / "bad", folder)
    seen: list[object] = []

    def look(trainer: Any, progress: Any) -> None:
        weights = {
            name: digest(t.numpy()) for name, t in trainer.learner.model.state_dict().items()
        }
        seen.append((str(progress), sorted(weights.items()), str(trainer.learner.settings)))
        raise EnoughError

    with listening() as said, suppress(EnoughError):
        resume(folder, on_step=look)
    return Reading(seen, tuple(said))


# Results and predictions


def make_results(base: Path) -> None:
    for order in range(2):
        file = base / "results" / "iirc-cifar" / "er" / f"order-{order}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        r = [round(0.7 - 0.02 * j, 2) for j in range(22)]  # as many tasks as the paper has
        content = {
            "method": "er", "benchmark": "iirc-cifar", "order": order, "seed": 100,
            "decision": "threshold", "r": r, "r_top1": r, "r_valid": r,
            "scores": {"jaccard": r, "pw_jaccard": r},
            "r_jk": [[r[j] if k <= j else None for k in range(22)] for j in range(22)],
            "settings": settings_for("er", "iirc-cifar", order=order).to_dict(),
            "command": "polarbear run er", "commit": None, "hardware": "cpu", "versions": {},
            "seconds": 3.5,
        }  # fmt: skip
        file.write_text(json.dumps(content))


def compared(base: Path) -> Reading:
    with printing() as out, listening() as said:
        compare((base / "results",), json=True)
        lines = json.loads(printed(out))
        compare((base / "results",))
        found = read_runs(base / "results")
    by_name = {one.path.name: one for group in found.groups for one in group.runs}
    if "order-1.json" not in by_name:
        raise TookOthersError("compare")
    bad = by_name.get("order-0.json")
    if bad is None:
        return Reading(None, tuple(said))
    scores = {name: values.tolist() for name, values in bad.scores.items()}
    return Reading({"scores": scores, "asked": str(bad.settings), "lines": str(lines)}, tuple(said))


def make_table(base: Path) -> None:
    base.mkdir(parents=True, exist_ok=True)
    scores = {"pw_jaccard": np.array([0.5, 0.4]), "jaccard": np.array([0.5, np.nan])}
    by_task = {name: np.array([[0.5, np.nan], [0.3, 0.2]]) for name in scores}
    text = ScoreTable("iirc-shapes-v1", 0, "test", scores, by_task).to_json()
    (base / "table.json").write_text(text)


def table_read(base: Path) -> Reading:
    file = base / "table.json"
    content = file.read_bytes() if file.is_file() else b""
    table = ScoreTable.from_json(content.decode(errors="surrogateescape"))
    return Reading({"scores": {name: a.tolist() for name, a in table.scores.items()}})


def make_predictions(base: Path) -> None:
    make_benchmark(base)
    data = load(str(base / "mine"))
    targets = {j: data.test(j).targets for j in range(2)}
    save_predictions(base / "mine.npz", data, targets)
    stored = np.load(base / "mine.npz")
    named = {**stored, "benchmark": np.array(str(base / "mine"))}
    np.savez(base / "mine.npz", **named)


def scored(base: Path) -> Reading:
    with printing() as out:
        score(base / "mine.npz", json=True)
    return Reading(printed(out))
