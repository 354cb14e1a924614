"""What a page shows of each superclass: pw-JS on its images, by every method."""

from typing import Any

from polarbear.base.errors import PolarbearError
from polarbear.report.options import Options
from polarbear.report.page.data import rounded
from polarbear.report.read.answers import known_hierarchy
from polarbear.report.read.families import ALONE, families
from polarbear.report.read.groups import Runs


def family_data(runs: Runs, options: Options) -> dict[str, Any]:
    """Return the scores of superclasses after the last task, or ``{"missing": why}``."""
    try:
        found = families(runs, options.root)
        tree = known_hierarchy(runs.benchmark)
    except (PolarbearError, OSError) as error:
        return {"missing": str(error)}
    return {
        "after": found.last,
        "names": [name if name == ALONE else tree.title(name) for name in found.names],
        "methods": [runs.names.index(group.name) for group in found.groups],
        "runs": found.counts,
        "scores": [rounded(row) for row in found.values],
        "n": found.n.astype(int).tolist(),
    }
