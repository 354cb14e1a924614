"""JSON, TOML and CSV with other values, keys, lines and fields."""

import csv
import io
import json
import re
from copy import deepcopy
from typing import Any

from hard.mutate_bytes import BRACKETS, Chance, Mutation

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
