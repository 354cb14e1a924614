"""Names that others gave, of methods, classes and benchmarks: to be read, and as names of files."""

import json
import re
from hashlib import sha256
from typing import Any

# Control characters (a terminal obeys them, XML forbids them), marks that reverse what follows,
# halves of characters and what is none: UTF-8 cannot be written with them, or nothing is seen.
_UNSEEN = "\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff"
_NOT_IN_A_LINE = re.compile(f"[\x00-\x1f{_UNSEEN}]")
_NOT_IN_A_TEXT = re.compile(f"[\x00-\x08\x0b-\x1f{_UNSEEN}]")

#: Letters of a name that are shown, and that a file has before its ending.
LONGEST, LONGEST_FILE = 100, 60


def one_line(text: str) -> str:
    r"""Return a text on one line, with a blank or � for what cannot be printed.

    >>> one_line("polar\nbear \x1b[2J")
    'polar bear �[2J'
    """
    return _NOT_IN_A_LINE.sub(lambda sign: " " if sign[0].isspace() else "�", text)


def readable(name: str, longest: int = LONGEST) -> str:
    """Return a name as it is shown: on one line, cut where it is endless."""
    line = one_line(name)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def printable(text: str) -> str:
    """Return lines of text without what a terminal would obey."""
    return _NOT_IN_A_TEXT.sub("�", text)


def json_text(content: Any, **how: Any) -> str:
    r"""Write JSON that every file, page and terminal takes: what cannot be printed is escaped.

    >>> json_text(["bär", "\x9b\ud800"])
    '["bär", "\\u009b\\ud800"]'
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, **how)
    return _NOT_IN_A_TEXT.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def file_name(name: str) -> str:
    """Return a name as (part of) a file's: no path, not too long, and another for another name.

    Latin letters, digits, dots, hyphens and underscores stay; a name that loses any other sign, or
    looks as if it had, gets a hash.

    >>> file_name("icarl-norm"), file_name("er, memory 50"), file_name("../..")
    ('icarl-norm', 'er-memory-50-0898b015', 'unnamed-0cfd1c96')
    """
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[:LONGEST_FILE]
    if plain and plain == name and not re.search("-[0-9a-f]{8}$", plain):
        return plain
    digest = sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{plain or 'unnamed'}-{digest}"
