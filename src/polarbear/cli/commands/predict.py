"""``polarbear predict``: images of one's own, shown to what a run has learnt."""

import csv
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from rich.text import Text

from polarbear.base.errors import DataError, PolarbearError
from polarbear.base.files import plain
from polarbear.base.names import one_line
from polarbear.cli.shared.console import console, print_json
from polarbear.cli.shared.options import Json, flag
from polarbear.cli.shared.training import engine
from polarbear.data.folders import SUFFIXES

if TYPE_CHECKING:
    from polarbear.launch.trained import TrainedModel

LIKELIEST = 3  # classes named where none is predicted


def predict(
    run: Annotated[Path, flag("A run folder, with its checkpoint/.", "RUN")],
    images: Annotated[tuple[Path, ...], flag("Image files, or folders of them.", "IMAGES…")],
    /,
    *,
    device: Annotated[str, flag("auto (a GPU where there is one), cpu, cuda or cuda:N.")] = "auto",
    json: Json = False,
    csv: Annotated[
        bool, flag("Print CSV: a line per image, a column of scores per class.")
    ] = False,
) -> None:
    """Show images to what a run has learnt: the classes it predicts, with their raw scores.

    Images are resized and cut to the size it learnt from. The run's own data are not needed.
    """
    if json and csv:
        raise PolarbearError("--json and --csv are two ways to print: give one of them")
    if not images:
        raise PolarbearError("which images? Files or folders: polarbear predict RUN IMAGES …")
    engine()
    from polarbear.launch.trained import load_model

    files = list(chain.from_iterable(map(_files, images)))
    model = load_model(run, device=device)
    if json:
        _print_json(model, files)
    elif csv:
        _print_csv(model, files)
    else:
        _print(model, files)


def _files(path: Path) -> Iterator[Path]:
    """Return a file, or the images below a folder, sorted; hidden ones are left out."""
    if not path.is_dir():
        yield path
        return
    below = sorted(f for f in path.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())
    found = [f for f in below if not any(p.startswith(".") for p in f.relative_to(path).parts)]
    if not found:
        raise DataError(f"no image lies below {path}: images end in {', '.join(SUFFIXES)}")
    yield from found


def _print(model: "TrainedModel", files: list[Path]) -> None:
    screen = console()
    for file, scores, predicted in model.predict_files(files):
        named = np.flatnonzero(predicted)
        best = named if named.size else np.argsort(-scores, kind="stable")[:LIKELIEST]
        words = ", ".join(f"{model.titles[i]} ({scores[i]:.2f})" for i in best)
        line = words if named.size else f"nothing; likeliest: {words}"
        screen.print(
            Text(f"{one_line(str(file))}: ", "bold") + Text(one_line(line), "none"),
            soft_wrap=True,
        )


def _print_json(model: "TrainedModel", files: list[Path]) -> None:
    print_json(
        [
            {
                "image": str(file),
                "predicted": list(model.names(predicted[None])[0]),
                "scores": dict(zip(model.classes, plain(scores), strict=True)),
            }
            for file, scores, predicted in model.predict_files(files)
        ]
    )


def _print_csv(model: "TrainedModel", files: list[Path]) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["image", "predicted", *model.classes])
    for file, scores, predicted in model.predict_files(files):
        out.writerow(
            [one_line(str(file)), ";".join(model.names(predicted[None])[0]), *scores.tolist()]
        )
