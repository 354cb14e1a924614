"""A view as a Hugging Face ``datasets.Dataset``; ``data.hugging_face`` is the way back."""

from io import BytesIO
from typing import Any

import numpy as np

from polarbear.adapters.samples import Samples
from polarbear.benchmark.source import Images
from polarbear.benchmark.stream import Stream, View
from polarbear.data.decode import LazyImages
from polarbear.data.hugging_face import library, source

__all__ = ["dataset", "embedded", "source"]


def dataset(stream: Stream, view: View) -> Any:
    """Return a ``datasets.Dataset`` that takes its pixels from the stream when they are asked for.

    A sample is {"image": (h, w, 3) uint8, "label": (s,) float32, "row": its row in the file}.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> dataset(stream, stream[0].train)[:4]["image"].shape
    (4, 32, 32, 3)
    """
    samples = Samples.of(stream, view)
    table = library().Dataset.from_dict({"place": np.arange(len(view))})

    def show(batch: dict[str, Any]) -> dict[str, Any]:
        place = np.asarray(batch["place"])
        images, labels = samples[place]
        return {"image": images, "label": labels, "row": view.rows[place]}

    return table.with_transform(show)


def embedded(stream: Stream, view: View) -> Any:
    """Return a ``datasets.Dataset`` with the images inside, to be saved, shared or mapped.

    Its features are ``image`` (an Image), ``labels`` (class labels named as the seen classes, as
    many as the image carries) and ``row``. Images are kept as their source stores them, or
    without loss as BMP, which is read twice as fast as PNG.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> sample = embedded(stream, stream[0].train)[0]
    >>> sample["image"].size, sample["labels"]
    ((32, 32), [5])
    """
    hub = library()
    images = stream.images(view.file)
    columns = {
        "image": [{"bytes": _encoded(images, row), "path": None} for row in view.rows.tolist()],
        "labels": [np.flatnonzero(labels).tolist() for labels in view.targets],
        "row": view.rows,
    }
    features = {
        "image": hub.Image(),
        "labels": hub.Sequence(hub.ClassLabel(names=list(view.classes))),
        "row": hub.Value("int64"),
    }
    return hub.Dataset.from_dict(columns, features=hub.Features(features))


def _encoded(images: Images, row: int) -> bytes:
    if isinstance(images, LazyImages) and images.size is None:
        return images.files.encoded(row)
    from PIL import Image

    out = BytesIO()
    Image.fromarray(images[row]).save(out, "BMP")
    return out.getvalue()
