"""What a run was made with: versions, hardware, and the commit of this copy."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.version import __version__


def environment() -> dict[str, Any]:
    """Return versions, hardware and the commit of this copy; one with changes ends in -dirty."""
    # A copy installed inside another project's repository is not of its commits.
    is_ours = _git("ls-files", "--error-unmatch", Path(__file__).name) is not None
    describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    return {
        "polarbear": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "commit": _git(*describe) if is_ours else None,
    }


def _git(*asked: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *asked]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
