"""NumPy files, archives of them, tensors and images whose headers lie."""

import io
import re
import struct
import zipfile
from typing import Any

import numpy as np

from hard.mutate_bytes import BOMB, BYTES, Chance, Mutation
from hard.mutate_text import JSON

# NumPy files

_DTYPES = ("|O", "|b1", "<f2", "<f4", "<f8", "<i8", "<u8", "|u1", "<U1", "<U7", "<U999999999",
           "|S3", "|V8", "<M8[D]", "<c16", "<M8[as]", "bogus", "<f16", "", "<i99")  # fmt: skip


def npy(header: str, body: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    """Give an array file with any header."""
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
