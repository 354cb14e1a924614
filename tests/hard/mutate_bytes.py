"""Bytes flipped, cut, doubled, swapped or replaced, whatever they mean."""

import random
import struct
from collections.abc import Callable

Chance = random.Random
Mutation = Callable[[bytes, Chance], bytes | None]

BRACKETS = b"[" * 100_000
BOMB = 3_000_000_000  # bytes that a lying header or a packed member stands for
ODD_TEXTS = (
    b"null", b"[]", b"{}", b'""', b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 5000, b"\x00",
    b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\n\n", b'"', b"'", b"\\", b",", b"{" * 5000, b"[" * 5000,
    b"\xef\xbb\xbf", b"PK\x03\x04", b"\x93NUMPY", b"\x1b[31m", b"<script>", b"$\\frac{$",
)  # fmt: skip


EMPTY_ZIP = b"PK\x05\x06" + bytes(18)
#: Nine bytes whose header says that they are 3 GB.
_LIE = b"{'descr': '|u1', 'fortran_order': False, 'shape': (3000000000,)}\n"
LYING_ARRAY = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(_LIE)) + _LIE + b"123456789"


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
         chance.randbytes(99), b"\x80\x04cos\nsystem\n.", EMPTY_ZIP, LYING_ARRAY, None)
    )  # fmt: skip


def _part(content: bytes, chance: Chance) -> tuple[int, int]:
    begin = chance.randrange(len(content))
    return begin, min(len(content), begin + chance.choice((1, 2, 4, 16, 64, 512)))


BYTES: tuple[Mutation, ...] = (
    flip_bits, flip_bits, flip_bits, cut_off, cut_out, double, zero, randomise, swap_parts,
    put_odd_text, put_odd_text, append, replace_all,
)  # fmt: skip
