"""A finished run as one small JSON file, for results that are kept and compared."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.decide import top1
from polarbear.errors import PolarbearError
from polarbear.evaluate import Evaluator
from polarbear.runs import RunFolder, plain
from polarbear.stream import Stream


def summarise(folder: RunFolder, stream: Stream | None = None, command: str = "") -> dict[str, Any]:
    """Give a run's scores with what made them.

    ``r`` is R_0, R_1, … on test by the run's own decision rule, ``r_valid`` the same on post-task
    validation, ``r_top1`` what the likeliest class alone would have scored: that needs the run's
    raw scores (``keep_scores``) and its ``stream``, and is None without them.
    """
    manifest = folder.manifest()
    settings, about = manifest["settings"], manifest["environment"]
    test, valid = folder.table("test"), folder.table("post_valid")
    return {
        "method": settings["method"],
        "benchmark": settings["benchmark"],
        "order": settings["order"],
        "seed": settings["seed"],
        "decision": settings["decision"],
        "r": plain(test.r),
        "r_top1": None if stream is None else _top1(folder, stream),
        "r_valid": plain(valid.r),
        "scores": plain(test.scores),
        "r_jk": plain(test.r_jk),
        "settings": settings,
        "command": command or command_of(settings),
        "commit": about["commit"],
        "hardware": about["device"],
        "precision": about.get("precision"),
        "versions": {k: about[k] for k in ("polarbear", "python", "numpy", "torch")},
        "seconds": folder.seconds(),
    }


def command_of(settings: Mapping[str, Any]) -> str:
    """Give the command that repeats a run, with what departs from the preset."""
    from polarbear.presets import settings_for

    usual = settings_for(settings["method"], settings["benchmark"]).to_dict()
    given = {k: v for k, v in settings.items() if v != usual[k] and k != "options"}
    flags = [_flag("", name, value) for name, value in given.items()]
    default = _default_options(settings["method"])
    own = {k: v for k, v in settings["options"].items() if k not in default or v != default[k]}
    options = [_flag("options.", name, value) for name, value in own.items()]
    words = ["polarbear run", settings["method"], f"--benchmark {settings['benchmark']}"]
    return " ".join([*words, *flags, *options])


def _default_options(method: str) -> dict[str, Any]:
    """Give a method's own options; none where it cannot be imported here."""
    from polarbear.methods.registry import resolve

    try:
        return asdict(resolve(method).Options())
    except (PolarbearError, ImportError):
        return {}


def _flag(group: str, name: str, value: Any) -> str:
    """A setting as the command line takes it; a switch has no value."""
    dashed = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{group}{dashed}" if value else f"--{group}no-{dashed}"
    return f"--{group}{dashed} {value}"


def _top1(folder: RunFolder, stream: Stream) -> list[float | None] | None:
    """Give the score after each task, None for those the run did not come to."""
    evaluator, no_levels = Evaluator(stream), np.empty(0, dtype=np.intp)
    found: list[float | None] = []
    for after, score in enumerate(folder.table().r):
        if np.isnan(score):
            found.append(None)
            continue
        scores = folder.raw(after)
        if scores is None:
            return None
        named = top1(scores, False, no_levels)
        found.append(evaluator.add(after, named)["pw_jaccard"])
    return found


def result_path(root: Path, summary: Mapping[str, Any]) -> Path:
    """Give where a summary is kept: ``results/<benchmark>/<method>/order-<n>.json``."""
    method = str(summary["method"]).replace(":", ".")
    return root / Path(summary["benchmark"]).name / method / f"order-{summary['order']}.json"
