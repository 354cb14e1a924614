"""``polarbear pack``: resize images once and put them into one packed file set."""

import shutil
from pathlib import Path
from typing import Annotated, cast

from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.source import Source
from polarbear.cli.commands.new_benchmark import beside
from polarbear.cli.shared.console import console, error_console
from polarbear.cli.shared.options import Root, flag
from polarbear.cli.shared.progress import progress
from polarbear.data.kinds import Data
from polarbear.data.pack import pack as pack_source
from polarbear.named.registry import load
from polarbear.named.shipped import IMAGENET


def pack(
    data: Annotated[
        str, flag("imagenet, or the path of data of your own, as new-benchmark takes it.", "DATA")
    ],
    /,
    *,
    out: Annotated[
        Path,
        flag(
            "Folder to make; then the --root of other commands or, of your own data, the --data "
            "of new-benchmark.",
            "DIR",
        ),
    ],
    root: Root = None,
    hierarchy: Annotated[
        Path | None,
        flag(
            "The classes of your own data; a copy goes into the folder.",
            "FILE",
            default="hierarchy.toml or hierarchy.csv with the data",
        ),
    ] = None,
    size: Annotated[int, flag("Length of the short side; smaller images stay as they are.")] = 256,
    workers: Annotated[int | None, flag("Threads at work.", "INT", default="one per core")] = None,
) -> None:
    """Resize and pack a data set's image files, for fast random reads."""
    if data == "imagenet" and hierarchy is not None:
        raise PolarbearError("--hierarchy is for data of your own: imagenet has its classes")
    if data != "imagenet" and root is not None:
        raise PolarbearError("--root is for imagenet: the path of data of your own says all")
    classes = None
    if data == "imagenet":
        source = _imagenet(root)
    elif Path(data).exists():
        classes = hierarchy or beside(Path(data))
        source = Data.at(data).open(Hierarchy.read(classes))
    else:
        raise unknown_name("data set to pack, and no path:", data, ["imagenet"])
    with progress(f"packing {data}") as report:
        folder = pack_source(source, out, size=size, workers=workers, progress=report)
    if classes is not None:
        shutil.copyfile(classes, folder / f"hierarchy{classes.suffix.lower()}")
    images = len(source.train) + len(source.test)
    console().print(f"packed {images:,} images into {folder}", soft_wrap=True)


def _imagenet(root: Path | None) -> Source:
    """Return ImageNet, whole or not, which is said before hours of work."""
    # This benchmark's hierarchy lets the two leaves pass that it leaves out, so all are packed.
    stream = load("iirc-imagenet-full", root=root, partial=True)
    source = cast(Source, stream.source)
    if lacking := IMAGENET.lacking(stream):
        said = f"{source.origin} has not all images: {lacking}. They are packed as they are"
        error_console().print(said, style="yellow", soft_wrap=True)
    return source
