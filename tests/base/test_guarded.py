"""Damaged and hostile files of every format: a right answer, or one error that names the file."""

import io
import json
import os
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polarbear.base.errors import DataError, PolarbearError
from polarbear.base.guarded import npz_names, parse_json, read_bytes, read_json, read_npy, read_npz
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.data.cifar100 import from_npz, from_parquet
from polarbear.data.folders import index_folders, open_folders
from polarbear.data.npz import open_npz
from polarbear.data.pack import pack
from polarbear.data.packed import open_packed
from polarbear.data.table import open_table
from polarbear.methods.presets import preset_values
from polarbear.named.folder import read_blueprint
from polarbear.named.registry import nominal_stream
from polarbear.score.predictions import read_predictions, save_predictions

TREE = 'alone = ["lamp"]\n[tree]\nbear = ["polar_bear", "brown_bear"]\n[titles]\nlamp = "light"\n'
ANIMALS = Hierarchy.from_children({"bear": ["polar_bear", "brown_bear"]}, alone=["lamp"])
STREAM = nominal_stream("iirc-shapes")

Read = Callable[[], Any]


def arrays(side: int = 4) -> dict[str, Any]:
    random = np.random.default_rng(0)
    out: dict[str, Any] = {}
    for split, count in (("train", 6), ("test", 3)):
        out[f"{split}_images"] = random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        out[f"{split}_labels"] = np.arange(count) % 3
    return out


def images(source: Any) -> Any:
    return source.leaves, source.train[:], source.train_leaf, source.test[:], source.test_leaf


def own_arrays(folder: Path) -> tuple[Path, Read]:
    np.savez_compressed(folder / "own.npz", classes=np.array(ANIMALS.leaves), **arrays())
    return folder / "own.npz", lambda: images(open_npz(folder / "own.npz", ANIMALS))


def cifar_arrays(folder: Path) -> tuple[Path, Read]:
    np.savez(folder / "cifar100.npz", **arrays(32))
    return folder / "cifar100.npz", lambda: images(from_npz(folder / "cifar100.npz"))


def predictions(folder: Path) -> tuple[Path, Read]:
    file = save_predictions(folder / "p.npz", STREAM, {0: STREAM.test(0).targets})

    def read() -> Any:
        found = read_predictions(file)
        return found.order, found.split, found.predicted(STREAM.test(0), found.tasks[0])

    return file, read


def one_array(folder: Path) -> tuple[Path, Read]:
    np.save(folder / "raw.npy", np.arange(40, dtype=np.float16).reshape(8, 5))
    return folder / "raw.npy", lambda: read_npy(folder / "raw.npy")


def parquet(folder: Path) -> tuple[Path, Read]:
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow, as the extra parquet has it")
    import pyarrow.parquet as pq

    def png(pixels: Any) -> dict[str, Any]:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        return {"bytes": file.getvalue(), "path": None}

    for split in ("train", "test"):
        img = pa.array(map(png, arrays(32)[f"{split}_images"]))
        table = {"img": img, "fine_label": arrays()[f"{split}_labels"]}
        pq.write_table(pa.table(table), folder / f"{split}-0.parquet")
    return folder / "train-0.parquet", lambda: images(from_parquet(folder))


def image_folders(folder: Path) -> Path:
    for split in ("train", "test"):
        for leaf in ANIMALS.leaves:
            (folder / split / leaf).mkdir(parents=True)
            Image.new("RGB", (6, 6), "red").save(folder / split / leaf / "0.png")
    return folder


def packed(name: str) -> Callable[[Path], tuple[Path, Read]]:
    def made(folder: Path) -> tuple[Path, Read]:
        source = open_folders(image_folders(folder / "images"), ANIMALS, cache=False)
        there = pack(source, folder / "packed", size=6)
        return there / name, lambda: images(open_packed(there))

    return made


def index(folder: Path) -> tuple[Path, Read]:
    split = image_folders(folder / "images") / "train"
    for leaf in ANIMALS.leaves:
        os.utime(split / leaf, (1, 1))
    index_folders(split)
    cache = folder / "images" / "polarbear-index-train.npz"
    assert cache.is_file()
    return cache, lambda: list(index_folders(split).names)


def table(folder: Path) -> tuple[Path, Read]:
    image_folders(folder / "images")
    lines = [f"{s}/{leaf}/0.png,{leaf},{s}" for s in ("train", "test") for leaf in ANIMALS.leaves]
    file = folder / "images" / "list.csv"
    file.write_text("\n".join(["path,label,split", *lines]))
    return file, lambda: images(open_table(file, ANIMALS))


def hierarchy_toml(folder: Path) -> tuple[Path, Read]:
    (folder / "h.toml").write_text(TREE)
    return folder / "h.toml", lambda: Hierarchy.read(folder / "h.toml").names


def hierarchy_csv(folder: Path) -> tuple[Path, Read]:
    (folder / "h.csv").write_text("class,parent,title\npolar_bear,bear,\nlamp,,light\n")
    return folder / "h.csv", lambda: Hierarchy.read(folder / "h.csv").names


def benchmark(name: str) -> Callable[[Path], tuple[Path, Read]]:
    def made(folder: Path) -> tuple[Path, Read]:
        (folder / "benchmark.toml").write_text(
            'name = "zoo"\nhierarchy = "h.toml"\norders = "orders.json"\n'
            '[data]\nkind = "folders"\npath = "images"\n[split]\nvalid = 0.2\n'
        )
        (folder / "orders.json").write_text('{"orders": [[["bear"], ["polar_bear", "lamp"]]]}')
        return folder / name, lambda: read_blueprint(folder)

    return made


def preset(folder: Path) -> tuple[Path, Read]:
    file = folder / "mine.toml"
    file.write_text(
        'epochs = 3\n[iirc-cifar]\nlike = "a"\ntasks = 2\n[iirc-cifar.er]\nseed = 1\n[a]\nseed = 4'
    )
    return file, lambda: preset_values(str(file), "iirc-cifar", "er")


def image(suffix: str) -> Callable[[Path], tuple[Path, Read]]:
    def made(folder: Path) -> tuple[Path, Read]:
        pixels = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
        root = image_folders(folder / "images")
        file = root / "train" / "lamp" / f"0{suffix}"
        (root / "train" / "lamp" / "0.png").unlink()
        Image.fromarray(pixels).save(file)
        source = open_folders(root, ANIMALS, cache=False)
        return file, lambda: source.train[list(source.train_leaf).index(1)]

    return made


FORMATS: dict[str, tuple[Callable[[Path], tuple[Path, Read]], int]] = {
    "own arrays": (own_arrays, 300),
    "CIFAR-100 arrays": (cifar_arrays, 200),
    "predictions": (predictions, 300),
    "one array": (one_array, 300),
    "parquet": (parquet, 150),
    "packed header": (packed("polarbear-packed.json"), 300),
    "packed index": (packed("index.npz"), 300),
    "packed images": (packed("images.bin"), 100),
    "index": (index, 200),
    "table": (table, 300),
    "hierarchy.toml": (hierarchy_toml, 400),
    "hierarchy.csv": (hierarchy_csv, 400),
    "benchmark.toml": (benchmark("benchmark.toml"), 400),
    "orders.json": (benchmark("orders.json"), 400),
    "preset": (preset, 400),
    "jpeg": (image(".jpg"), 200),
    "png": (image(".png"), 200),
    "webp": (image(".webp"), 200),
}


def mutated(content: bytes, chance: random.Random) -> bytes:
    """One to three changes: a bit, a cut, a part moved or doubled, strange bytes put in."""
    out = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 3))):
        a, b = sorted(chance.randrange(len(out) + 1) for _ in range(2))
        b = min(b, a + 64)
        match chance.randrange(6):
            case 0 | 1:
                if out:
                    out[min(a, len(out) - 1)] ^= 1 << chance.randrange(8)
            case 2:
                del out[a:]
            case 3:
                out[b:b] = out[a:b]
            case 4:
                del out[a:b]
            case _:
                out[a:a] = chance.choice(STRANGE)
    return bytes(out)


STRANGE = (
    *(b"\0", b"\xff" * 4, b"[" * 5000, b"{" * 300, b'{"a":' * 3000, b"NaN", b"1e999", b"-"),
    *(b"9" * 5000, b"\n", b'"', b"= ", b"a" * 300, b"[[a]]\n", b"\xed\xa0\x80", b"PK\x03\x04"),
)


def refusal(read: Read) -> str | None:
    try:
        read()
    except PolarbearError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", FORMATS)
def test_a_mutated_file_is_read_or_refused_by_name(name: str, tmp_path: Path) -> None:
    make, rounds = FORMATS[name]
    file, read = make(tmp_path)
    whole, chance = file.read_bytes(), random.Random(name)
    read()
    refused = 0
    for _ in range(rounds):
        file.write_bytes(content := mutated(whole, chance))
        message = refusal(read)
        refused += message is not None
        # What is wrong with a packed set is said of its folder.
        due = str(file.parent if "packed" in name else file)
        assert message is None or due in message, content
    assert refused or name == "index"  # a damaged index is made anew
    file.write_bytes(whole)
    read()


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_no_file_is_refused_without_waiting(name: str, tmp_path: Path) -> None:
    file, read = FORMATS[name][0](tmp_path)
    file.unlink()
    os.mkfifo(file)  # opening it would wait for a writer that never comes
    if name == "index":
        read()
        return
    with pytest.raises(PolarbearError):
        read()
    file.unlink()
    file.mkdir()
    with pytest.raises(PolarbearError):
        read()


# --- arrays made to harm ---


def npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + size + header.encode() + data


def described(shape: str, kind: str = "'|u1'") -> str:
    return f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"


HARMFUL = {
    "a promise of 10**12 bytes": npy(described("(10**12,)".replace("10**12", "1000000000000"))),
    "a negative shape": npy(described("(-3, -1)"), b"abc"),
    "more bytes than promised": npy(described("(2,)"), b"abc"),
    "a header of brackets": npy("(" * 9000),
    "a header of minus signs": npy(described("(" + "-" * 9000 + "1,)")),
    "a header without end": npy("{'descr': '''"),
    "a header of 4 GB": npy("{}", version=(2, 0)).replace(b"\x02\0\0\0", b"\xff\xff\xff\xff"),
    "objects": npy(described("(1,)", "'|O'"), b"abcdefgh"),
    "no array": b"just text",
    "nothing": b"",
}


@pytest.mark.parametrize("name", HARMFUL)
def test_arrays_made_to_harm(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(HARMFUL[name])
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", HARMFUL[name])
    with pytest.raises(DataError, match=r"a\.npy cannot be read as \.npy"):
        read_npy(tmp_path / "a.npy")
    with pytest.raises(DataError, match=r"a\.npz cannot be read as \.npz"):
        read_npz(tmp_path / "a.npz", ["x"])


def test_members_that_are_encrypted_or_compressed_otherwise_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, x=np.zeros(3))
    content = file.read_bytes()
    for place, value in ((6, 1), (8, 12), (8, 99)):  # flags, then the way it is compressed
        changed = bytearray(content)
        for head, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
            changed[content.index(head) + place + shift] = value
        file.write_bytes(changed)
        with pytest.raises(DataError, match=r"a\.npz cannot be read as \.npz"):
            read_npz(file, ["x"])


def test_a_member_that_inflates_beyond_what_is_due_is_not_inflated(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1 << 24, np.uint8), y=np.zeros(3))
    assert read_npz(tmp_path / "a.npz", ["y", "z"], most=1 << 20)["y"].tolist() == [0, 0, 0]
    assert npz_names(tmp_path / "a.npz") == ["x", "y"]
    with pytest.raises(DataError, match=r"x\.npy has 16,777,344 bytes; due are 1,048,576 at most"):
        read_npz(tmp_path / "a.npz", ["x"], most=1 << 20)


LITTLE_MEMORY = """
import resource, sys
from polarbear.base.errors import DataError
from polarbear.base.guarded import read_npz
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 60_000_000,) * 2)
try:
    read_npz(sys.argv[1], ["x"])
except DataError as error:
    print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to limit memory")
def test_memory_that_is_not_there_is_an_error_of_ours(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez_compressed(file, x=np.zeros(100_000_000, np.uint8))
    command = [sys.executable, "-c", LITTLE_MEMORY, str(file)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"{file} cannot be read as .npz: it asks for more memory than there is")


def test_a_flipped_bit_in_any_byte_of_arrays_is_noticed_or_harmless(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, x=np.arange(6))
    whole = file.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        file.write_bytes(changed)
        try:
            found = read_npz(file, ["x"])
        except DataError:
            continue
        assert found.get("x", np.arange(6)).tolist() == list(range(6))


# --- labels and texts that do not do ---


@pytest.mark.parametrize(
    "labels",
    [np.zeros((6, 3), int), np.zeros((6, 3), "U5"), np.zeros((), int), np.array(["lamp"] * 5)],
)
def test_labels_are_one_an_image(tmp_path: Path, labels: Any) -> None:
    changed = arrays() | {"train_labels": labels, "classes": np.array(ANIMALS.leaves)}
    np.savez(tmp_path / "own.npz", **changed)
    with pytest.raises(DataError, match=r"own\.npz: train_labels must be one an image, \(6,\)"):
        open_npz(tmp_path / "own.npz", ANIMALS)


def test_names_of_tasks_and_facts_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "p.npz"
    for name in ("after_00", "after_" + "9" * 5000, "after_\u0663", "after_"):
        np.savez(file, **{name: np.zeros(3)})
        with pytest.raises(PolarbearError, match=r"p\.npz has no predictions"):
            read_predictions(file)
    for facts in ({"benchmark": np.zeros((2, 2))}, {"split": 3}, {"order": "0"}, {"order": [0]}):
        np.savez(file, after_0=np.zeros(3), **facts)
        with pytest.raises(PolarbearError, match=rf"p\.npz: {next(iter(facts))} must be one"):
            read_predictions(file)


def test_a_preset_that_is_like_itself_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for text in ('[a]\nlike = "a"\n', '[a]\nlike = "b"\n[b]\nlike = "c"\n[c]\nlike = "b"\n'):
        file.write_text(text)
        with pytest.raises(PolarbearError, match=r"mine\.toml: the table . is like itself"):
            preset_values(str(file), "a", "er")
    file.write_text("a = 3\nlike = 4\n[b]\nlike = [1]")
    for benchmark in ("a", "b"):
        with pytest.raises(PolarbearError, match=r"mine\.toml cannot be read as a preset"):
            preset_values(str(file), benchmark, "er")


def test_titles_are_texts(tmp_path: Path) -> None:
    (tmp_path / "h.toml").write_text(TREE.replace('"light"', "7"))
    with pytest.raises(PolarbearError, match=r"h\.toml: the title of 'lamp' must be a text, not 7"):
        Hierarchy.read(tmp_path / "h.toml")


def test_deep_texts_are_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep.toml"
    for text in ("a = " + "[" * 100_000, "[tree." + ".".join("a" * 3000) + "]\nb = []\n"):
        deep.write_text(text)
        with pytest.raises(PolarbearError, match=r"deep\.toml"):
            Hierarchy.read(deep)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"deep\.json cannot be read as JSON: it is nested too"):
        read_json(tmp_path / "deep.json")


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", '{"a": 1e999}', "", b"\xff", "[" * 10**5])
def test_json_that_is_none(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_json(text)


def test_names_that_cannot_be_are_errors_of_ours(tmp_path: Path) -> None:
    for name in ("a" * 300, "a\0b", "there/is/none"):
        with pytest.raises(DataError):
            read_bytes(tmp_path / name)
    if os.geteuid():
        (tmp_path / "mine").touch(mode=0)
        with pytest.raises(DataError, match="mine cannot be read: Permission denied"):
            read_bytes(tmp_path / "mine")


@pytest.mark.parametrize(
    "change",
    [
        {"size": 16_001},
        {"size": 0},
        {"size": 6.0},
        {"size": True},
        {"train": "3"},
        {"train": -3},
        {"bytes": None},
        {"sha256": 7},
        {"train": 2, "test": 4},
    ],
)
def test_a_header_of_a_packed_set_asks_for_what_can_be(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    file, read = packed("polarbear-packed.json")(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    if "test" in change:
        read()  # where the training images end is the header's to say
        return
    with pytest.raises(DataError, match=r"polarbear-packed\.json: \w+ is a"):
        read()


def test_an_index_of_other_arrays_is_refused(tmp_path: Path) -> None:
    file, read = packed("index.npz")(tmp_path)
    with np.load(file) as stored:
        whole = dict(stored)
    for name, other in {
        "leaf": np.full(6, 7, "<i4"),
        "offsets": whole["offsets"].astype(np.uint64),
        "shapes": np.array(3),
        "names": whole["names"][:-3],
    }.items():
        np.savez(file, **whole | {name: other})
        with pytest.raises(DataError, match=r"index\.npz does not fit"):
            read()
