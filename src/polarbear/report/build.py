"""Make a whole report: every figure and table that the runs allow, the page, and an index."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from polarbear.base.errors import PolarbearError, counted, unknown_name
from polarbear.base.names import file_name, json_text, one_line
from polarbear.named.benchmark import PARTIAL
from polarbear.named.registry import find
from polarbear.report.figures import scores as figures
from polarbear.report.figures.confusion import confusion, confusion_full
from polarbear.report.figures.decisions import decisions
from polarbear.report.figures.gallery import gallery, side_by_side
from polarbear.report.figures.heat import superclasses
from polarbear.report.figures.logged import logged
from polarbear.report.figures.points import bytes_kept, levels
from polarbear.report.figures.river import river
from polarbear.report.figures.style import FORMATS, Drawing, save, stamped, styled
from polarbear.report.figures.tree import inferred_trees
from polarbear.report.options import Options
from polarbear.report.page.page import add_links, write_page
from polarbear.report.read.answers import comparable_runs
from polarbear.report.read.groups import Runs
from polarbear.report.read.paper import paper_results
from polarbear.report.tables.decisions import decision_tables
from polarbear.report.tables.formats import Table, save_table
from polarbear.report.tables.results import result_tables
from polarbear.report.tables.statistics import statistics_tables

log = logging.getLogger("polarbear")

Draw = Callable[..., list[Drawing]]
Part = Callable[[], list["Made"]]
#: What a part has made, and why it was left out if it was.
Result = tuple[list["Made"], str]

FIGURES: Mapping[str, Draw] = {
    "levels": levels,
    "average-pw-js": figures.average_pw_js,
    "average-jaccard": figures.average_jaccard,
    "per-task": figures.per_task,
    "forgetting": figures.forgetting,
    "questions": figures.questions,
    "bytes-kept": bytes_kept,
    "superclasses": superclasses,
    "confusion": confusion,
    "confusion-full": confusion_full,
    "memory": figures.memory,
    "hierarchy": figures.hierarchy,
    "inferred-tree": inferred_trees,
    "logged": logged,
    "river": river,
    "gallery": gallery,
    "side-by-side": side_by_side,
    "decisions": decisions,
}
#: Figures with a drawing per method. Each is a part of its own, so that processes share them.
BY_METHOD = ("confusion-full", "gallery")
TABLES: Mapping[str, Callable[[Runs, Options], list[Table]]] = {
    "results": lambda runs, options: result_tables(runs, paper=options.paper, root=options.root),
    "statistics": statistics_tables,
    "decisions": decision_tables,
}


@dataclass(frozen=True)
class Made:
    """One thing a report has: its name, what it shows, and its files."""

    name: str
    kind: str
    caption: str
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Report:
    """What was made, and what was left out with the reason."""

    folder: Path
    made: tuple[Made, ...]
    left_out: Mapping[str, str]

    @property
    def page(self) -> Path | None:
        """The HTML page, where there is one."""
        return next((one.files[0] for one in self.made if one.kind == "page"), None)


def build_report(
    runs: Runs,
    out: str | Path,
    options: Options | None = None,
    *,
    formats: Sequence[str] = FORMATS,
    only: Sequence[str] = (),
    jobs: int = 1,
    say: Callable[[str], None] = lambda name: None,
) -> Report:
    """Write figures, tables, the page and ``contents.md`` into a folder.

    ``only`` names the figures to draw (default: all); ``jobs`` is the number of processes.
    ``say`` hears the name of each part that is done. What the runs do not allow, such as
    confusion without predictions, is left out and the report says why.
    """
    out, options = Path(out), options or Options()
    options.check(runs)
    runs = options.chosen(runs)
    for kind, given, valid in (("format", formats, FORMATS), ("figure", only, FIGURES)):
        for name in given:
            if name not in valid:
                raise unknown_name(kind, name, valid)
    with styled():
        pass  # says at once that matplotlib is missing
    parts = _parts(runs, out, options, formats, only)
    results: dict[str, Result] = {}
    folder = None  # of a benchmark of one's own, where it is one and is here
    with suppress(PolarbearError):
        folder = find(runs.benchmark).folder
    for name, result in _results(list(parts.items()), jobs, folder):
        say(name)
        results[name] = result
    made = [one for name in parts for one in results[name][0]]
    left_out = {name: results[name][1] for name in parts if results[name][1]}
    if options.paper and not paper_results(runs.benchmark):
        left_out["the paper's numbers"] = f"the paper has no table for {runs.benchmark}"
    for path, why in runs.short.items():
        left_out[f"{path}, from the scores after task {runs.last}"] = why
    report = Report(out, tuple(made), left_out)
    if report.page is not None:
        add_links(report.page, _files(report, ("figure", "table")))
    _write_contents(report, runs)
    return report


def _results(
    parts: Sequence[tuple[str, Part]], jobs: int, folder: Path | None
) -> Iterator[tuple[str, Result]]:
    """Make the parts; with several jobs, in bundles, since each carries all runs along."""
    if jobs <= 1:
        for part in parts:
            yield from _make([part], None)
        return
    # Small bundles, for whoever is done takes the next; large enough to carry the runs few times.
    number = 4 * jobs + 1
    bundles = [parts[first::number] for first in range(number)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        begun = [pool.submit(_make, bundle, folder) for bundle in bundles if bundle]
        for future in as_completed(begun):
            yield from future.result()


def _make(parts: Sequence[tuple[str, Part]], folder: Path | None) -> list[tuple[str, Result]]:
    if folder is not None:
        # A new process knows the benchmark by its folder; without it, parts that need it say so.
        with suppress(PolarbearError):
            find(folder)
    results: list[tuple[str, Result]] = []
    for name, part in parts:
        try:
            results.append((name, (part(), "")))
        except PolarbearError as error:
            log.info("%s left out: %s", name, error)
            results.append((name, ([], str(error))))
    return results


def draw(name: str, runs: Runs, options: Options | None = None) -> list[Drawing]:
    """Draw one figure by name; some are several drawings."""
    if name not in FIGURES:
        raise unknown_name("figure", name, FIGURES)
    options = options or Options()
    options.check(runs)
    return _drawings(FIGURES[name], options.chosen(runs), options)


def _parts(
    runs: Runs, out: Path, options: Options, formats: Sequence[str], only: Sequence[str]
) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for name in only or FIGURES:
        for part, draw_part in _drawn(name, runs).items():
            parts[part] = partial(_figures, draw_part, runs, out / "figures", options, formats)
    for name in TABLES:
        parts[f"tables: {name}"] = partial(_tables, name, runs, out / "tables", options)
    parts["page"] = partial(_page, runs, out, options)
    return parts


def _drawn(name: str, runs: Runs) -> dict[str, Draw]:
    """Return the parts of a figure: itself, or one per method."""
    if name not in BY_METHOD:
        return {name: FIGURES[name]}
    try:
        groups = [group for group, _ in comparable_runs(runs)]
    except PolarbearError:
        return {name: FIGURES[name]}  # which says why it cannot be drawn
    titles = Counter(group.title for group in groups)
    return {
        f"{name}: {group.title if titles[group.title] == 1 else file_name(group.name)}": partial(
            FIGURES[name], only=(group.name,)
        )
        for group in groups
    }


def _figures(
    draw_part: Draw, runs: Runs, folder: Path, options: Options, formats: Sequence[str]
) -> list[Made]:
    return [
        Made(one.name, "figure", one.caption, tuple(save(one, folder, formats, options.size)))
        for one in _drawings(draw_part, runs, options)
    ]


def _drawings(draw_part: Draw, runs: Runs, options: Options) -> list[Drawing]:
    """Return a part's drawings; of partial data, by their names and at a glance."""
    with styled(options.size):
        drawings = draw_part(runs, options)
        if not runs.benchmark.endswith(PARTIAL):
            return drawings
        return [stamped(replace(one, name=one.name + PARTIAL), "partial data") for one in drawings]


def _tables(name: str, runs: Runs, folder: Path, options: Options) -> list[Made]:
    tables = TABLES[name](runs, options)
    if runs.benchmark.endswith(PARTIAL):
        tables = [replace(one, name=one.name + PARTIAL) for one in tables]
    return [Made(one.name, "table", one.caption, tuple(save_table(one, folder))) for one in tables]


def _page(runs: Runs, out: Path, options: Options) -> list[Made]:
    file = write_page(runs, out, options)
    return [Made("page", "page", "All of it to look through, in one file.", (file,))]


def _write_contents(report: Report, runs: Runs) -> None:
    """Write an index for people and one for programs."""
    groups = ", ".join(f"{group.title} ({group.count})" for group in runs.groups)
    about = f"{counted(runs.count, 'run')}, {runs.split} images: {groups}."
    lines = [f"# Report on {runs.benchmark}", "", about, ""]
    for one in sorted(report.made, key=lambda one: ("page", "figure", "table").index(one.kind)):
        links = (f"[{file.suffix[1:]}]({_relative(file, report.folder)})" for file in one.files)
        lines.append(f"- **{one.name}** ({', '.join(links)}): {one.caption}")
    if report.left_out:
        lines += ["", "Left out:", ""]
        lines += [f"- {name}: {reason}" for name, reason in report.left_out.items()]
    report.folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{one_line(line)}\n" for line in lines)
    (report.folder / "contents.md").write_text(text, encoding="utf-8")
    content = {
        "benchmark": runs.benchmark,
        "groups": {group.name: [str(run.path) for run in group.runs] for group in runs.groups},
        "made": _files(report),
        "left_out": dict(report.left_out),
    }
    text = json_text(content, indent=1) + "\n"
    (report.folder / "contents.json").write_text(text, encoding="utf-8")


def _files(
    report: Report, kinds: Sequence[str] = ("figure", "table", "page")
) -> dict[str, list[str]]:
    """Return the files of what was made by its name, relative to the report's folder."""
    shown = (one for one in report.made if one.kind in kinds)
    return {one.name: [_relative(file, report.folder) for file in one.files] for one in shown}


def _relative(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix()
