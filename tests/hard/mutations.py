"""Valid files made invalid, from a flipped bit to a header that lies: every one by a seed.

A mutation takes the valid bytes and a source of chance and gives other bytes; None stands for a
folder where the file should be.
"""

import csv
import io
import json
import random
import re
import struct
import zipfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

Chance = random.Random
Mutation = Callable[[bytes, Chance], bytes | None]

BRACKETS = b"[" * 100_000
BOMB = 3_000_000_000  # bytes that a lying header or a packed member stands for
ODD_TEXTS = (
    b"null", b"[]", b"{}", b'""', b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 5000, b"\x00",
    b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n\n", b'"', b"'", b"\\", b",", b"{" * 5000, b"[" * 5000,
    b"\xef\xbb\xbf", b"PK\x03\x04", b"\x93NUMPY", b"\x1b[31m", b"<script>", b"$\\frac{$",
)  # fmt: skip


# Bytes


def flip_bits(content: bytes, chance: Chance) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        place = chance.randrange(len(changed))
        changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut_off(content: bytes, chance: Chance) -> bytes:
    return content[: chance.randrange(len(content))]


def cut_out(content: bytes, chance: Chance) -> bytes:
    begin, end = _part(content, chance)
    return content[:begin] + content[end:]


def double(content: bytes, chance: Chance) -> bytes:
    begin, end = _part(content, chance)
    return content[:end] + content[begin:end] * chance.choice((1, 1, 50)) + content[end:]


def zero(content: bytes, chance: Chance) -> bytes:
    """What some file systems leave after a power cut."""
    begin, end = _part(content, chance)
    return content[:begin] + bytes(end - begin) + content[end:]


def randomise(content: bytes, chance: Chance) -> bytes:
    begin, end = _part(content, chance)
    return content[:begin] + chance.randbytes(end - begin) + content[end:]


def swap_parts(content: bytes, chance: Chance) -> bytes:
    a, b, c = sorted(chance.randrange(len(content) + 1) for _ in range(3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def put_odd_text(content: bytes, chance: Chance) -> bytes:
    begin, end = _part(content, chance)
    end = chance.choice((begin, end))
    return content[:begin] + chance.choice(ODD_TEXTS) + content[end:]


def append(content: bytes, chance: Chance) -> bytes:
    return content + chance.choice((b"\0" * 100, content, chance.randbytes(50), b"\n[]\n"))


def replace_all(content: bytes, chance: Chance) -> bytes | None:
    return chance.choice(
        (b"", b"\n", b"\0" * len(content), BRACKETS, b"{" * 100_000, b'{"a":' * 50_000,
         chance.randbytes(99), b"\x80\x04cos\nsystem\n.", _npz({}), _npy_lie(chance), None)
    )  # fmt: skip


def _part(content: bytes, chance: Chance) -> tuple[int, int]:
    begin = chance.randrange(len(content))
    return begin, min(len(content), begin + chance.choice((1, 2, 4, 16, 64, 512)))


BYTES: tuple[Mutation, ...] = (
    flip_bits, flip_bits, flip_bits, cut_off, cut_out, double, zero, randomise, swap_parts,
    put_odd_text, put_odd_text, append, replace_all,
)  # fmt: skip


# JSON

_LONG = "x" * 5000
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 99, 10**6, 2**31, 2**63, 2**64, 10**30, 10**400, 0.5, -0.5,
    1e308, 1e-308, float("inf"), float("-inf"), float("nan"), "", " ", "0", "1", "er", "joint",
    "\ud800", "a\0b", "\n", "\x1b[31m", "$\\frac{$", "../../escaped", "/escaped", "..", ".",
    "hostile_module:Method", "hostile_module", "iirc-cifar", "iirc-shapes", "熊", _LONG, [], {},
    [[]], [None], [0], [[[]]], {"a": 1}, {"": None}, ["x"] * 3, [0.5] * 100, [[0.5]],
)  # fmt: skip


def json_value(content: bytes, chance: Chance) -> bytes:
    """One value, or two, by another of any type."""
    value = json.loads(content)
    for _ in range(chance.choice((1, 1, 2))):
        places = list(_places(value))
        if not places:
            break
        holder, key = chance.choice(places)
        holder[key] = deepcopy(chance.choice(ODD_VALUES))
    return _dumped(value)


def json_key(content: bytes, chance: Chance) -> bytes:
    """A key removed, doubled, renamed or added; a list longer, shorter or in another order."""
    value = json.loads(content)
    holders = [holder for holder in _holders(value) if holder]
    if not holders:
        return b"{}"
    holder = chance.choice(holders)
    if isinstance(holder, dict):
        name = chance.choice(list(holder))
        how = chance.randrange(4)
        kept = holder[name] if how == 2 else holder.pop(name)
        if how == 1:
            holder[chance.choice((name + "x", "", name.upper(), "format", "__class__"))] = kept
        if how == 3:
            holder[name] = {name: kept}
    else:
        how = chance.randrange(4)
        if how == 0:
            holder.pop(chance.randrange(len(holder)))
        elif how == 1:
            holder.append(chance.choice([*holder, *ODD_VALUES]))
        elif how == 2:
            chance.shuffle(holder)
        else:
            holder *= 3
    return _dumped(value)


def json_swap(content: bytes, chance: Chance) -> bytes:
    """Two values in each other's place."""
    value = json.loads(content)
    places = list(_places(value))
    if len(places) < 2:
        return b"[]"
    (one, a), (other, b) = chance.sample(places, 2)
    one[a], other[b] = other[b], one[a]
    try:
        return _dumped(value)
    except ValueError:  # one was inside the other
        return b"[]"


def json_deep(content: bytes, chance: Chance) -> bytes:
    """A value nested deeper than the parser's stack."""
    value = json.loads(content)
    places = list(_places(value))
    if not places:
        return BRACKETS
    holder, key = chance.choice(places)
    holder[key] = "DEEP"
    depth = chance.choice((50, 900, 20_000))
    deep = b"[" * depth + b"]" * depth if chance.random() < 0.7 else b'{"a":' * depth + b"1"
    return _dumped(value).replace(b'"DEEP"', deep)


def json_text(content: bytes, chance: Chance) -> bytes:
    """A number or text replaced in the text itself: what json.dumps would not write."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e-?\d+)?|\"[^\"]*\"|true|false|null", content))
    if not found:
        return b"null"
    match = chance.choice(found)
    odd = (b"1" * 4301, b"1e999", b"-0", b"01", b"+1", b"0x10", b'"\\ud800"', b'"\\u0000"', b"nan",
           b"Infinity", b"-Infinity", b"NaN", b"1_000", b'"\x01"', b"tru", b'"\xff"')  # fmt: skip
    return content[: match.start()] + chance.choice(odd) + content[match.end() :]


def _holders(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


def _places(value: Any) -> Any:
    for holder in _holders(value):
        keys = holder if isinstance(holder, dict) else range(len(holder))
        yield from ((holder, key) for key in keys)


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


JSON: tuple[Mutation, ...] = (json_value, json_value, json_key, json_swap, json_deep, json_text)


def json_lines(content: bytes, chance: Chance) -> bytes | None:
    """One line of many changed as JSON is; or lines lost, doubled, or in another order."""
    lines = content.splitlines()
    place = chance.randrange(len(lines))
    how = chance.randrange(8)
    if how == 0:
        del lines[place]
    elif how == 1:
        lines.insert(place, lines[chance.randrange(len(lines))])
    elif how == 2:
        chance.shuffle(lines)
    elif how == 3:
        lines[place] = chance.choice((b"[]", b"3", b"null", b"{}", b"", b'"x"', BRACKETS, b"\xff"))
    else:
        changed = chance.choice(JSON)(lines[place], chance)
        lines[place] = b"" if changed is None else changed
    return b"\n".join(lines) + b"\n" * chance.choice((1, 1, 1, 0))


# TOML

ODD_TOML = (
    b"0", b"-1", b"1", b"1.5", b"inf", b"nan", b"1e308", b"9999999999999999999999", b'""', b'"er"',
    b"true", b"[]", b"[[]]", b"{}", b"[1]", b'["a", "a"]', b"1979-05-27", b'"""\n"""', b"'''x'''",
    b'"\\u0000"', b'"\\ud800"', b'"../../escaped"', b'"/escaped"', b'"hostile_module:Method"',
    b"[" * 20_000, b"{a=" * 5000, b'"' + b"x" * 5000 + b'"', b"{ a = 1 }", b'"iirc-shapes"',
    b'"\xff"', b'"mine"', b'"."', b'"$\\frac{$"',
)  # fmt: skip


def toml_value(content: bytes, chance: Chance) -> bytes:
    lines = content.splitlines()
    places = [i for i, line in enumerate(lines) if b"=" in line]
    if not places:
        return b"a = 1"
    place = chance.choice(places)
    lines[place] = lines[place].partition(b"=")[0] + b"= " + chance.choice(ODD_TOML)
    return b"\n".join(lines) + b"\n"


def toml_line(content: bytes, chance: Chance) -> bytes:
    lines = content.splitlines()
    place = chance.randrange(len(lines))
    how = chance.randrange(5)
    if how == 0:
        del lines[place]
    elif how == 1:
        lines.insert(place, lines[chance.randrange(len(lines))])
    elif how == 2:
        chance.shuffle(lines)
    elif how == 3:
        lines.insert(place, chance.choice((
            b"[tree.a.b.c]", b"[a" + b".a" * 2000 + b"]", b"[[tree]]", b'like = "mine"', b"x = 1",
            b"[data]", b'like = "iirc-shapes"', b'alone = "lamp"', b"[titles]\nbear = 3",
            b"[tree]\nbear = { bear = ['bear'] }",
        )))  # fmt: skip
    else:
        lines[place] = lines[place].upper()
    return b"\n".join(lines) + b"\n"


TOML: tuple[Mutation, ...] = (toml_value, toml_value, toml_line)


# CSV

ODD_FIELDS = ("", " ", "0", "\0", "\n", '"', "a,b", "x" * 200_000, "../..", "/", ".", "\ufeff",
              "熊", "hostile", "=1+1", "path", "class", "train", "\x1b[31m", "a" * 300)  # fmt: skip


def csv_field(content: bytes, chance: Chance) -> bytes:
    rows = list(csv.reader(io.StringIO(content.decode(errors="replace"))))
    row = chance.choice(rows)
    how = chance.randrange(6)
    if how == 0:
        row.pop()
    elif how == 1:
        row.append(chance.choice(ODD_FIELDS))
    elif how == 2:
        rows.append(list(row))
    elif how == 3:
        rows.remove(row)
    else:
        row[chance.randrange(len(row))] = chance.choice([*ODD_FIELDS, *row])
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


CSV: tuple[Mutation, ...] = (csv_field,)


# NumPy files

_DTYPES = ("|O", "|b1", "<f2", "<f4", "<f8", "<i8", "<u8", "|u1", "<U1", "<U7", "<U999999999",
           "|S3", "|V8", "<M8[D]", "<c16", "<M8[as]", "bogus", "<f16", "", "<i99")  # fmt: skip


def npy(header: str, body: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    """Return an array file with any header."""
    text = header.encode("latin-1", "replace") + b"\n"
    size = "<H" if version == (1, 0) else "<I"
    if len(text) > 65535 and version == (1, 0):
        version, size = (2, 0), "<I"
    return b"\x93NUMPY" + bytes(version) + struct.pack(size, len(text)) + text + body


def npy_header(content: bytes, chance: Chance) -> bytes:
    """An array whose header says something else than what follows."""
    array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    body = content[10 + struct.unpack("<H", content[8:10])[0] :]
    shape: Any = chance.choice((
        array.shape, array.shape, (*array.shape, 1), array.shape[:1], (), (0,), (-1,), (BOMB,),
        (2**40, 2**40), (1,) * 40, array.shape[::-1], (array.size,), (True,), ("a",), [1], 3, None,
        (1.5,), (2**63,), tuple(2 * n for n in array.shape), (10**400,),
    ))  # fmt: skip
    descr: Any = chance.choice((array.dtype.str, array.dtype.str, array.dtype.str, *_DTYPES))
    order: Any = chance.choice((False, False, False, True, None, 3))
    header = {"descr": descr, "fortran_order": order, "shape": shape}
    if chance.random() < 0.1:
        header.pop(chance.choice(list(header)))
    if chance.random() < 0.05:
        header["descr"] = [("a", "<f8"), ("a", "<f8")]
    return npy(repr(header), body, chance.choice(((1, 0), (1, 0), (2, 0), (3, 0), (9, 9))))


def npy_text(content: bytes, chance: Chance) -> bytes:
    """A header that is no dictionary, or is too deep or too long to parse."""
    texts = (
        "(" * 3000,
        "[" * 9000,
        "{" * 9000,
        "-" * 9000 + "1",
        "",
        "x",
        "{}",
        "3",
        "{'shape': (}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 20_000 + ")}",
        "__import__('hostile_module')",
        "{'a': 1, 'a': 2}",
        "lambda: 0",
        "'" + "x" * 70_000,
        "{'descr': " + "[" * 200 + "]" * 200 + ", 'fortran_order': False, 'shape': ()}",
    )
    return npy(chance.choice(texts), content[-100:])  # fmt: skip


def npy_other(content: bytes, chance: Chance) -> bytes:
    """A whole array of another kind, shape or content."""
    array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    return _saved(_other_array(array, chance))


def _other_array(array: Any, chance: Chance) -> Any:
    kinds = (np.bool_, np.float16, np.float64, np.int8, np.int64, np.uint8, np.uint64,
             np.complex128, "U3", "S3", "M8[s]")  # fmt: skip
    how = chance.randrange(8)
    try:
        with np.errstate(all="ignore"):
            if how == 0:
                return array.astype(chance.choice(kinds))
            if how == 1:
                return array[None]
            if how == 2:
                return array.reshape(-1)
            if how == 3:
                return array[: len(array) // 2]
            if how == 4:
                return np.concatenate([array, array])
            if how == 5:
                return array.T
            if how == 6:
                odd = chance.choice((-1, 0, 255, 10**6, np.nan, np.inf))
                return np.full(array.shape, odd)
    except (TypeError, ValueError, IndexError):
        pass
    return chance.choice((np.zeros(0), np.array(3), np.array("x"), np.zeros((0, 0), bool),
                          np.zeros((3, 0, 3), np.uint8), np.array(["a"] * 5),
                          np.array([2**63], np.uint64)))  # fmt: skip


def _npy_lie(chance: Chance) -> bytes:
    """A short file that says it is a large array."""
    return npy(
        repr({"descr": "|u1", "fortran_order": False, "shape": (BOMB,)}), chance.randbytes(9)
    )


def _saved(array: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


NPY: tuple[Mutation, ...] = (npy_header, npy_header, npy_text, npy_other)


# Archives of arrays


def npz_member(content: bytes, chance: Chance) -> bytes:
    """One member changed as an array file is, in an archive that is whole."""
    members = _members(content)
    name = chance.choice(list(members))
    changed = chance.choice((*NPY, *BYTES))(members[name], chance)
    members[name] = b"" if changed is None else changed
    return _npz(members, chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def npz_members(content: bytes, chance: Chance) -> bytes:
    """Members removed, renamed, swapped, added, or there twice."""
    members = _members(content)
    name, other = chance.choice(list(members)), chance.choice(list(members))
    how = chance.randrange(6)
    if how == 0:
        del members[name]
    elif how == 1:
        odd = (
            "x.npy",
            "",
            "..",
            "/etc/x.npy",
            "after_99.npy",
            "after_-1.npy",
            name + ".npy",
            name[:-4],
        )
        members[chance.choice(odd)] = members.pop(name)
    elif how == 2:
        members[name], members[other] = members[other], members[name]
    elif how == 3:
        members[chance.choice(("after_5.npy", "extra.npy", "readme.txt"))] = members[name]
    elif how == 4:
        members[name] = chance.choice((b"no array", b"", b"\x80\x04.", b"PK", content))
    else:
        return _npz(members, doubled=name)
    return _npz(members)


def npz_fields(content: bytes, chance: Chance) -> bytes:
    """Fields of the zip format: encryption, methods of packing, sizes, checksums."""
    changed = bytearray(content)
    for begin in [m.start() for m in re.finditer(rb"PK\x03\x04|PK\x01\x02|PK\x05\x06", content)]:
        if chance.random() < 0.5:
            continue
        # Flags, method, checksum and sizes begin two bytes earlier in a local header.
        shift = {b"\x03": 6, b"\x01": 8, b"\x05": 8}[content[begin + 2 : begin + 3]]
        place = begin + shift + chance.choice((0, 0, 2, 2, 8, 12, 16, 18, 20))
        if place + 2 <= len(changed):
            odd = chance.choice((1, 8, 12, 14, 93, 99, 0xFFFF, 0x0801, chance.randrange(65536)))
            changed[place : place + 2] = struct.pack("<H", odd)
    return bytes(changed)


def npz_bomb(content: bytes, chance: Chance) -> bytes:
    """A member that says it is large, or is, once it is unpacked."""
    members = _members(content)
    name = chance.choice(list(members))
    if chance.random() < 0.98:  # a real one takes seconds to make
        members[name] = _npy_lie(chance)
        return _npz(members)
    header = repr({"descr": "|u1", "fortran_order": False, "shape": (400_000_000,)})
    members[name] = npy(header, bytes(400_000_000))
    return _npz(members, zipfile.ZIP_DEFLATED)


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def _npz(members: dict[str, bytes], packing: int = zipfile.ZIP_STORED, doubled: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packing, compresslevel=1) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name), member, packing)
            if name == doubled:
                archive.filelist.append(archive.filelist[-1])
    return out.getvalue()


NPZ: tuple[Mutation, ...] = (npz_member, npz_member, npz_members, npz_fields, npz_fields)


# Tensors


def tensors_header(content: bytes, chance: Chance) -> bytes:
    """The JSON in front of safetensors, with its length put right or wrong."""
    size = struct.unpack("<Q", content[:8])[0]
    header = chance.choice((*JSON, *BYTES))(content[8 : 8 + size], chance) or b""
    told = len(header) if chance.random() < 0.8 else chance.choice((0, 1, 2**63, size, BOMB))
    return struct.pack("<Q", told) + header + content[8 + size :]


# Images


def image_size(content: bytes, chance: Chance) -> bytes:
    """Another width or height in the header: of a PNG, a JPEG or a WebP."""
    sides = (0, 1, 7, 33, 255, 4000, 9000, 13_000, 16_001, 65_535)
    changed = bytearray(content)
    if content[:4] == b"\x89PNG":
        import zlib

        changed[16:24] = struct.pack(">II", chance.choice(sides), chance.choice(sides))
        changed[29:33] = struct.pack(">I", zlib.crc32(changed[12:29]))
    elif content[:2] == b"\xff\xd8":
        place = max(content.find(b"\xff\xc0"), content.find(b"\xff\xc2"))
        if place > 0:
            changed[place + 5 : place + 9] = struct.pack(">HH", *chance.choices(sides, k=2))
    else:
        changed[26:30] = struct.pack("<HH", *chance.choices(sides, k=2))
    return bytes(changed)


#: How the bytes of a kind of file are changed: half as bytes, half as what they mean.
BY_KIND: dict[str, Sequence[Mutation]] = {
    "bytes": BYTES,
    "json": (*BYTES[:9], *BYTES, *JSON * 4),
    "jsonl": (*BYTES, json_lines, json_lines, json_lines) + (json_lines,) * 10,
    "toml": (*BYTES, *TOML * 4),
    "csv": (*BYTES, *CSV * 8),
    "npy": (*BYTES, *NPY * 4),
    "npz": (*BYTES, *NPZ * 3, npz_bomb),
    "tensors": (*BYTES, *(tensors_header,) * 10),
    "image": (*BYTES, *(image_size,) * 4),
}


def mutated(kind: str, content: bytes, chance: Chance) -> tuple[str, bytes | None]:
    """Return a mutation's name and what it makes of a file."""
    mutation = chance.choice(BY_KIND[kind])
    return mutation.__name__, mutation(content, chance)
