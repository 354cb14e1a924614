"""``polarbear pack``: resize images once and put them into one packed file set."""

from pathlib import Path
from typing import Annotated, cast

from polarbear.base.errors import unknown_name
from polarbear.benchmark.source import Source
from polarbear.cli.shared.console import console, error_console
from polarbear.cli.shared.options import Root, flag
from polarbear.cli.shared.progress import progress
from polarbear.data.pack import pack as pack_source
from polarbear.named.registry import load
from polarbear.named.shipped import IMAGENET


def pack(
    data: Annotated[str, flag("The data set: imagenet.", "DATA")],
    /,
    *,
    out: Annotated[Path, flag("Folder to make; then the --root of other commands.", "DIR")],
    root: Root = None,
    size: Annotated[int, flag("Length of the short side; smaller images stay as they are.")] = 256,
    workers: Annotated[int | None, flag("Threads at work.", "INT", default="one per core")] = None,
) -> None:
    """Resize and pack a data set's image files, for fast random reads."""
    if data != "imagenet":
        raise unknown_name("data set to pack", data, ["imagenet"])
    # This benchmark's hierarchy lets the two leaves pass that it leaves out, so all are packed.
    stream = load("iirc-imagenet-full", root=root, partial=True)
    source = cast(Source, stream.source)
    if lacking := IMAGENET.lacking(stream):  # said before hours of work
        said = f"{source.origin} has not all images: {lacking}. They are packed as they are"
        error_console().print(said, style="yellow", soft_wrap=True)
    with progress(f"packing {data}") as report:
        folder = pack_source(source, out, size=size, workers=workers, progress=report)
    images = len(source.train) + len(source.test)
    console().print(f"packed {images:,} images into {folder}", soft_wrap=True)
