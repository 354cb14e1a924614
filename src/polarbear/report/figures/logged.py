"""Numbers that methods log of their own, epoch by epoch."""

from polarbear.base.errors import DataError
from polarbear.base.names import file_name
from polarbear.report.figures.style import Drawing, new_figure, points
from polarbear.report.options import Options
from polarbear.report.palette import COLOURS
from polarbear.report.read.groups import Run, Runs
from polarbear.runs.folder import RunFolder
from polarbear.score.record import EpochRecord


def logged(runs: Runs, options: Options) -> list[Drawing]:
    """Draw what each method logged, over the epochs of its first run that logged anything."""
    drawings: list[Drawing] = []
    for group in runs.groups:
        found = next(((run, own) for run in group.runs if (own := _with_own(run))), None)
        if found is not None:
            name = "logged" if not drawings else f"logged-{file_name(group.name)}"
            drawings.append(_drawing(name, group.title, options.width, *found))
    if not drawings:
        raise DataError("no method of these runs logs numbers of its own (self.log)")
    return drawings


def _with_own(run: Run) -> list[EpochRecord]:
    """Return a run's epochs if its method logged anything in one; a summary has none."""
    epochs = list(RunFolder(run.path).epochs()) if run.path.is_dir() else []
    return epochs if any(epoch.own for epoch in epochs) else []


def _drawing(name: str, title: str, width: float, run: Run, epochs: list[EpochRecord]) -> Drawing:
    names = sorted({key for epoch in epochs for key in epoch.own})
    begins = [i for i, epoch in enumerate(epochs) if i == 0 or epoch.task != epochs[i - 1].task]
    figure = new_figure(width, 0.3 + 1.3 * len(names))
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for axes, key in zip(panels, names, strict=True):
        places = [i for i, epoch in enumerate(epochs) if key in epoch.own]
        values = [epochs[i].own[key] for i in places]
        axes.plot(places, values, ".", markersize=points(2), color=COLOURS[0])
        for begin in begins:
            axes.axvline(begin, color="#bbbbbb", linewidth=points(0.6))
        axes.set_ylabel(key)
        axes.grid(visible=False)
    panels[-1].set_xlabel("epoch; a line where a task begins")
    words = f"What {title} logs of its own, means over the epochs of order {run.order}."
    return Drawing(name, words, figure)
