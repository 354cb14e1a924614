"""A finished run as one small JSON file, for results that are kept and compared."""

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.arrays import Bools
from polarbear.base.errors import PolarbearError
from polarbear.base.files import plain
from polarbear.base.names import file_name
from polarbear.benchmark.stream import Stream
from polarbear.methods.catalogue import METHODS
from polarbear.methods.presets import preset_values
from polarbear.named.registry import find
from polarbear.runs.cost import Cost
from polarbear.runs.decided import ASKED, parents_after, score_by_rule
from polarbear.runs.folder import RunFolder
from polarbear.score.cases import count_cases, varying_scores
from polarbear.score.decide import OWN_RULE, USUAL, Seen
from polarbear.score.transfer import before_arrival, mean_so_far
from polarbear.settings.settings import WORTH_COMPILING, Settings


def summarise(folder: RunFolder, stream: Stream | None = None, command: str = "") -> dict[str, Any]:
    """Return a run's scores with what made them.

    ``r`` is R_0, R_1, … on test by the run's own decision rule, ``r_valid`` the same on post-task
    validation, ``r_by_rule`` what every other rule would have scored: that needs the run's raw
    scores (``keep_scores``) and its ``stream``, and is None without them. A loop of one's own has
    no ``command`` unless it is given one.
    """
    manifest = folder.manifest()
    settings, about = manifest["settings"], manifest["environment"]
    more = {k: manifest[k] for k in ("title", "oracle", "oracle_rule") if manifest.get(k)}
    if (tree := folder.inferred_tree()) is not None:
        more["tree"] = tree
    test, valid = folder.table("test"), folder.table("post_valid")
    return {
        **{k: settings[k] for k in ("method", "benchmark", "order", "seed", "decision")},
        **more,
        "r": plain(test.r),
        "r_by_rule": None if stream is None else _by_rule(folder, stream),
        "r_valid": plain(valid.r),
        "scores": plain(test.scores),
        "r_jk": plain(test.r_jk),
        "told": told(folder, manifest, stream),
        "settings": settings,
        "command": command or ("" if folder.own_loop else command_of(settings)),
        "commit": about["commit"],
        "hardware": about["device"],
        "precision": about.get("precision"),
        "versions": {k: about[k] for k in ("polarbear", "python", "numpy", "torch")},
        "seconds": folder.seconds(),
        "cost": Cost.of(folder).to_json(),
    }


def command_of(settings: Mapping[str, Any]) -> str:
    """Return the command that repeats a run, with what departs from the preset."""
    given = departures(settings, {})
    if settings["method"] not in METHODS and settings.get("decision") == USUAL:
        given["decision"] = USUAL  # a class that is not ours may have a rule of its own
    words = ["polarbear run", settings["method"], f"--benchmark {settings['benchmark']}"]
    return " ".join([*words, *(_flag(name, value) for name, value in given.items())])


def departures(
    settings: Mapping[str, Any], usual_options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings that are not the paper's, flat: a method's own as ``options.<name>``.

    What the options of a method that is not ours usually are is not known: whoever reads results
    need not trust them, so a module that they name is not imported. By default none depart.
    """
    name = settings["method"]
    unknown = settings["options"] if usual_options is None else usual_options
    options = METHODS[name].options if name in METHODS else unknown
    asked = {"method": name, "benchmark": settings["benchmark"]}  # which need not be known here
    values = preset_values("paper", settings["benchmark"], name)
    usual = Settings.from_dict(asked | values).to_dict()
    if usual["decision"] is None and settings.get("decision") is not None:
        usual["decision"] = OWN_RULE if settings["decision"] == OWN_RULE else USUAL
    if settings.get("compile") is False and settings.get("network") not in WORTH_COMPILING:
        usual["compile"] = False  # as it would be anyway
    own = {**options, **usual["options"]}  # a preset may have others than the method
    usual |= {f"options.{key}": value for key, value in own.items()}
    given = {key: value for key, value in settings.items() if key != "options"}
    given |= {f"options.{key}": value for key, value in settings["options"].items()}
    return {k: v for k, v in given.items() if k not in usual or v != usual[k]}


def _flag(name: str, value: Any) -> str:
    """A setting as the command line takes it; a switch has no value, a list or dict several."""
    group, dot, own = name.replace("_", "-").rpartition(".")
    if isinstance(value, bool):
        return f"--{group}{dot}{own}" if value else f"--{group}{dot}no-{own}"
    if isinstance(value, dict):
        value = [shlex.quote(f"{key}={json.dumps(one)}") for key, one in value.items()]
    several = value if isinstance(value, (list, tuple)) else [value]
    return " ".join([f"--{group}{dot}{own}", *map(str, several)])


def told(
    folder: RunFolder, manifest: Mapping[str, Any], stream: Stream | None
) -> dict[str, list[float | None]]:
    """Return what follows from the predictions, after each task: None where it does not.

    Of how many cases ratios are and of how many images and, with the ``stream``, forward transfer.
    """
    classes = manifest["classes"]
    found: dict[str, list[float | None]] = {
        name: [None] * len(classes) for name in (*varying_scores(), "images")
    }
    before, done = np.full(len(classes), np.nan), []
    for after in range(len(classes)):
        if (predicted := folder.predictions(after)) is None:
            continue
        done.append(after)
        seen = [name for task in classes[: after + 1] for name in task]
        for name, number in _counted(predicted, manifest["settings"]["benchmark"], seen).items():
            found[name][after] = number
        if stream is not None and after + 1 < len(classes):
            before[after + 1] = before_arrival(stream, after + 1, predicted)
    if stream is not None:
        found["forward_transfer"] = plain(mean_so_far(before, done))
    return found


def cases_after(folder: RunFolder, after: int) -> dict[str, int]:
    """Return of how many cases ratios are after a task, and of how many images; what is known."""
    try:
        manifest, predicted = folder.manifest(), folder.predictions(after)
    except PolarbearError:  # damaged: whoever needs them says so
        return {}
    if predicted is None:
        return {}
    seen = [name for task in manifest["classes"][: after + 1] for name in task]
    return _counted(predicted, manifest["settings"]["benchmark"], seen)


def _counted(predicted: Bools, benchmark: str, seen: list[str]) -> dict[str, int]:
    try:
        counted = count_cases(predicted, find(benchmark).hierarchy(), seen)
    except PolarbearError:  # a benchmark, or classes, that are not here
        return {}
    return {**counted, "images": len(predicted)}


def _by_rule(folder: RunFolder, stream: Stream) -> dict[str, list[float | None]] | None:
    """Return the score after each task by each rule, None for those the run did not come to."""
    own = folder.table().r
    found: dict[str, list[float | None]] = {rule: [None] * len(own) for rule in ASKED}
    for after in np.flatnonzero(~np.isnan(own)).tolist():
        scores, view = folder.raw(after), stream.test(after)
        if scores is None:
            return None
        parents = parents_after(folder, after, len(view.classes))
        about = Seen.of(stream.hierarchy, view.classes, parents=parents)
        for rule, score in score_by_rule(scores, about, view.targets).items():
            found[rule][after] = None if np.isnan(score) else score
    if folder.manifest()["settings"]["decision"] == USUAL:
        # Whether a score of exactly 0 is a yes, the run knew, and its folder does not.
        found[USUAL] = plain(own)
    return found


def result_path(root: Path, summary: Mapping[str, Any]) -> Path:
    """Return where a summary is kept: ``results/<benchmark>/<method>/order-<n>.json``."""
    method, order = str(summary["method"]), file_name(str(summary["order"]))
    # A class of one's own is called as Python calls it: package.module.Class.
    dotted = re.fullmatch(r"\w[\w.]{,100}:\w{1,50}", method, re.ASCII)
    folder = method.replace(":", ".") if dotted else file_name(method)
    return root / file_name(Path(summary["benchmark"]).name) / folder / f"order-{order}.json"


def kept_scores(file: Path) -> list[float | None] | None:
    """Return a summary's ``r``; None of a file that has none."""
    try:
        found: list[float | None] | None = json.loads(file.read_text(encoding="utf-8"))["r"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found
