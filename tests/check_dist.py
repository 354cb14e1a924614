"""Check what ``make dist`` built: all files of ours that git knows, and nothing else.

python tests/check_dist.py dist
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

#: In the sdist, but written by the build.
WRITTEN = {"PKG-INFO"}


def main(folder: Path) -> None:
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    tracked = set(subprocess.check_output(["git", "ls-files", "-z"], text=True).split("\0"))
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/polarbear/")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    compare(wheel, {name for name in names if ".dist-info/" not in name}, package, package)
    with tarfile.open(sdist) as archive:
        inside = {"/".join(PurePosixPath(name).parts[1:]) for name in archive.getnames()}
    compare(sdist, inside - WRITTEN, {f"src/{name}" for name in package}, tracked)


def compare(archive: Path, found: set[str], needed: set[str], allowed: set[str]) -> None:
    """End with a message unless what is found is all that is needed and nothing but the allowed."""
    if missing := sorted(needed - found):
        sys.exit(f"{archive} lacks {', '.join(missing)}")
    if more := sorted(found - allowed):
        sys.exit(f"{archive} has what git does not know: {', '.join(more)}")
    print(f"{archive}: {len(found)} files, all of them ours")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
