"""Hugging Face data sets out and in: features, saving, and the errors of wrong columns."""

from dataclasses import replace

import numpy as np
import pytest

import polarbear
from polarbear import Stream
from polarbear.base.errors import DataError, UnknownNameError


@pytest.fixture
def hub(library):
    module = library("datasets")
    module.disable_progress_bars()
    return module


def test_an_embedded_data_set_has_named_features_and_can_be_saved(hub, stream, tmp_path) -> None:
    from polarbear.adapters.hugging_face import embedded

    view = stream.test(after=1)
    made = embedded(stream, view)
    assert isinstance(made.features["image"], hub.Image)
    assert made.features["labels"].feature.names == list(view.classes)
    made.save_to_disk(tmp_path / "saved")
    back = hub.load_from_disk(tmp_path / "saved")
    assert back[3]["labels"] == np.flatnonzero(view.targets[3]).tolist()
    assert np.array_equal(np.asarray(back[3]["image"]), stream.images("test")[view.rows[3]])


def test_stored_files_are_taken_as_they_are(hub, stream, tmp_path) -> None:
    from polarbear.adapters.hugging_face import embedded
    from polarbear.data.decode import LazyImages

    class Files:
        def __len__(self) -> int:
            return len(stream.images("test"))

        def encoded(self, row: int) -> bytes:
            from io import BytesIO

            from PIL import Image

            out = BytesIO()
            Image.fromarray(stream.images("test")[row]).save(out, "PNG")
            return out.getvalue()

        def where(self, row: int) -> str:
            return f"row {row}"

    files = Files()
    of_files = replace(stream, source=replace(stream.source, test=LazyImages(files)))
    view = stream.test(after=0)
    made = embedded(of_files, view).cast_column("image", hub.Image(decode=False))
    assert made[0]["image"]["bytes"] == files.encoded(int(view.rows[0]))


def test_the_live_data_set_is_shuffled_and_cut_as_any_other(hub, stream: Stream) -> None:
    from polarbear.adapters.hugging_face import dataset

    view = stream[1].train
    mixed = dataset(stream, view).shuffle(seed=0).select(range(50))
    batch = mixed[:]
    assert len(set(batch["row"].tolist())) == 50
    assert np.array_equal(batch["image"], stream.images("train")[batch["row"]])
    place = np.searchsorted(view.rows, batch["row"])
    assert np.array_equal(batch["label"], view.targets[place])


def two_parts(hub, stream: Stream, names: tuple[str, ...] | None = None):
    """iirc-shapes as a hub would have it: images and leaf labels of two files."""
    source = stream.source
    features = hub.Features(
        {"img": hub.Image(), "fine": hub.ClassLabel(names=list(names or source.leaves))}
    )
    columns = (
        {"img": list(source.train[:300]), "fine": source.train_leaf[:300]},
        {"img": list(source.test[:90]), "fine": source.test_leaf[:90]},
    )
    return [hub.Dataset.from_dict(column, features=features) for column in columns]


@pytest.mark.parametrize("in_memory", [True, False])
def test_two_data_sets_are_a_source(hub, stream: Stream, in_memory: bool) -> None:
    from polarbear.data.hugging_face import source

    train, test = two_parts(hub, stream)
    made = source(train, test, image="img", label="fine", in_memory=in_memory)
    assert made.leaves == stream.source.leaves
    assert np.array_equal(made.train[np.arange(300)], stream.source.train[:300])
    assert np.array_equal(made.test_leaf, stream.source.test_leaf[:90])
    assert isinstance(made.train, np.ndarray) == in_memory
    built = polarbear.Stream.from_source(made, stream.hierarchy, stream.schedule)
    polarbear.check_stream(built)
    rows = built[0].train.rows
    assert np.array_equal(built.images("train")[rows], stream.source.train[rows])


def test_the_checksum_follows_the_content(hub, stream: Stream) -> None:
    from polarbear.data.hugging_face import source

    train, test = two_parts(hub, stream)
    same, other = (
        source(part, test, image="img", label="fine") for part in (train, train.select(range(200)))
    )
    assert same.checksum == source(train, test, image="img", label="fine").checksum
    assert same.checksum != other.checksum


def test_wrong_columns_are_named(hub, stream: Stream) -> None:
    from polarbear.data.hugging_face import source

    train, test = two_parts(hub, stream)
    with pytest.raises(UnknownNameError, match=r"unknown column 'label'.*Valid: fine, img"):
        source(train, test)
    with pytest.raises(UnknownNameError, match="unknown column 'imag': did you mean 'img'"):
        source(train, test, image="imag", label="fine")
    with pytest.raises(DataError, match=r"the column 'fine' is ClassLabel.*an Image is needed"):
        source(train, test, image="fine", label="fine")
    with pytest.raises(DataError, match=r"a ClassLabel is needed: dataset.class_encode_column"):
        source(train, test, image="img", label="img")
    renamed = two_parts(hub, stream, tuple(f"my {leaf}" for leaf in stream.source.leaves))[1]
    with pytest.raises(
        DataError, match="'fine' of the test set has other classes than the train set"
    ):
        source(train, renamed, image="img", label="fine")
