"""Which runs belong together: one method, the same settings, any class order and seed."""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

from polarbear.methods.catalogue import METHODS
from polarbear.report.read.groups import Group, Run
from polarbear.score.decide import ORACLE, USUAL
from polarbear.settings.settings import Settings, deciding

log = logging.getLogger("polarbear")

#: Settings in which the runs of a group may differ: none of them makes another method.
WITHIN = deciding("run", "speed", "files")
#: Settings that hold several, by name.
NESTED = ("options", "network_options", "preparation_options")
WORDS = {one.name: one.metadata["words"] for one in fields(Settings)}


def group_runs(runs: Iterable[Run]) -> tuple[Group, ...]:
    """Return the groups, methods in the order of the catalogue."""
    by_method: dict[str, list[Run]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    known = {name: place for place, name in enumerate(METHODS)}
    order = sorted(by_method, key=lambda name: (known.get(name, len(known)), name))
    groups = [group for method in order for group in _split(by_method[method])]
    titles = Counter(group.title for group in groups)
    return tuple(replace(group, alike=titles[group.title] > 1) for group in groups)


def _split(runs: list[Run]) -> list[Group]:
    """Split a method's runs by the settings in which they differ."""
    given = [_settings(run) for run in runs]
    differing = _differing(given)
    parts: dict[str, tuple[dict[str, Any], list[Run]]] = {}
    for run, settings in zip(runs, given, strict=True):
        own = {key: settings[key] for key in differing if key in settings}
        # Without a total memory, the memory per class says it all; most schedules have no steps.
        silent = {"memory_total"} if own.get("memory_total") is None else set()
        if own.get("schedule", "steps") != "steps":
            silent |= {"rate_steps", "rate_factor"}
        told = [in_words(k, v) for k, v in own.items() if k not in silent]
        parts.setdefault(", ".join([run.method, *told]), (own, []))[1].append(run)
    ordered = sorted(parts.items(), key=lambda part: [_rank(v) for v in part[1][0].values()])
    return [_group(name, own, members) for name, (own, members) in ordered]


def _group(name: str, own: dict[str, Any], runs: list[Run]) -> Group:
    members = sorted(runs, key=lambda run: (_rank(run.order), _rank(run.seed), str(run.path)))
    return Group(name, runs[0].method, runs[0].benchmark, tuple(members), own)


def warn_of_twins(groups: Iterable[Group]) -> None:
    """Name the runs of a group that have the same order and seed: their mean counts them twice."""
    for group in groups:
        seen: dict[tuple[int | None, int | None], Run] = {}
        for run in group.runs:
            twin = seen.setdefault((run.order, run.seed), run)
            if twin is not run:
                log.warning(
                    "%s: %s and %s have the same order %s and seed %s; both count",
                    *(group.name, twin.path, run.path, run.order, run.seed),
                )


def _settings(run: Run) -> dict[str, Any]:
    """Return a run's settings, flat; one an older version did not write has its default."""
    if not run.settings:
        return {}
    defaults = {one.name: one.default for one in fields(Settings) if one.default is not MISSING}
    given: Mapping[str, Any] = {**defaults, "decision": USUAL, **run.settings}
    flat = {key: value for key, value in given.items() if key not in NESTED}
    for name in NESTED:
        flat |= {f"{name}.{key}": value for key, value in (given.get(name) or {}).items()}
    return {key: value for key, value in flat.items() if key not in WITHIN}


def _differing(given: list[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for settings in given for key in settings)
    written = {key: {json.dumps(s[key]) for s in given if key in s} for key in keys}
    # An option that only some runs were given tells them apart, too.
    absent = {key for key in keys if any(key not in s for s in given if s)}
    # What an oracle predicts is never shown without saying so.
    oracle = {"decision"} if any(str(s.get("decision")).endswith(ORACLE) for s in given) else set()
    return [key for key in keys if len(written[key]) > 1 or key in absent | oracle]


def in_words(key: str, value: Any) -> str:
    """Return a setting as people write it.

    >>> in_words("memory_per_class", None), in_words("options.top_k", 3)
    ('memory all', 'top k 3')
    >>> in_words("rate_steps", [0.5, 0.75])
    'rate steps 0.5 0.75'
    >>> in_words("preparation_options.side", 64)
    'preparation side 64'
    >>> in_words("network_options.depth", 2)
    'network depth 2'
    """
    shown = "all" if value is None and key == "memory_per_class" else value
    if isinstance(value, list):
        shown = " ".join(map(str, value))
    plain = key.removeprefix("options.").replace("_options.", " ")
    return f"{WORDS.get(key) or plain.replace('_', ' ')} {shown}"


def _rank(value: Any) -> tuple[int, float, str]:
    """Sort numbers before text, and None, which keeps all, last."""
    if isinstance(value, (int, float)):
        return (0, value, "")
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))
