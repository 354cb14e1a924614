"""JSON that tells whether it is still what was written: one entry is a checksum of the others.

The checksum is of the content, not of the bytes: whatever is read and fits it is what was written,
however it is spaced.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from polarbear.base.guarded import parse_json

SEAL = "check"
DIGITS = 16  # of sha256: a damaged record passes once in 2**64


def checksum(content: Any) -> str:
    """Return a checksum of plain data, whatever the order of their keys."""
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return sha256(text.encode()).hexdigest()[:DIGITS]


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data with their checksum."""
    return {**content, SEAL: checksum(content)}


def unsealed(text: bytes, *, required: bool = True) -> dict[str, Any]:
    """Read sealed JSON, without its seal; anything wrong with it is a ValueError.

    Where a seal is not ``required``, as earlier versions wrote none, one that is there must fit.
    """
    return without_seal(parsed(text), required=required)


def parsed(text: bytes) -> dict[str, Any]:
    """Read a JSON object; anything wrong with it is a ValueError."""
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def without_seal(content: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    """Return what was sealed; a seal that does not fit is a ValueError."""
    rest = {name: value for name, value in content.items() if name != SEAL}
    seal = content.get(SEAL)
    if seal != checksum(rest) and (required or seal is not None):
        raise ValueError(
            f"it was changed after it was written: its checksum is {seal!r}, that of its content "
            f"{checksum(rest)!r}"
        )
    return rest
