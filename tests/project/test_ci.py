"""What CI runs: the tests first, then the extras, each left out only with its reason."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="CI's script comes with a checkout")

#: A make that notes its targets, whose environments are ready or not, and that fails when told to.
MAKE = """#!/usr/bin/env bash
[ "$1" = --question ] && exit "$NOT_READY"
echo "$*" >> "$NOTES"
case " $FAILING " in *" $1 "*) exit 2 ;; esac
"""
DF = """#!/usr/bin/env bash
echo "Filesystem 1024-blocks Used Available Capacity Mounted"
echo "disk 999999999 0 $((FREE_GB * 1048576)) 1% /"
"""
READY = {
    "docs": ".venvs/docs/ready",
    "dist": ".venvs/dist/ready",
    "test-adapters": ".venvs/adapters/ready .venvs/avalanche/ready",
    "test-cluster": ".venvs/ray/ready",
}
EXTRAS = list(READY)
EVERYTHING = ["test", *EXTRAS]


@pytest.fixture
def ci(tmp_path: Path):
    """Runs a copy of the script among commands that do nothing but take notes."""
    commands = tmp_path / "commands"
    commands.mkdir()
    nothing = dict.fromkeys(("apt-get", "chromium", "slurmctld"), "#!/usr/bin/env bash\n")
    all_commands = {"make": MAKE, "df": DF, **nothing}
    for name, text in all_commands.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    copy = tmp_path / "project" / ".ci" / "run"
    copy.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, copy)

    def run(**settings: str) -> tuple[int, list[str], str]:
        notes = tmp_path / "notes"
        notes.write_text("")
        known = {"NOTES": str(notes), "NOT_READY": "1", "FREE_GB": "50", "FAILING": ""}
        path = f"{commands}:{os.environ['PATH']}"
        done = subprocess.run(
            [str(copy)],
            capture_output=True,
            text=True,
            env={"PATH": path, **known, **settings},
        )
        return done.returncode, notes.read_text().splitlines(), done.stdout

    return run


def test_the_tests_come_first_and_nothing_is_left_out(ci) -> None:
    code, made, told = ci()
    assert code == 0
    assert made[0] == ".venvs/test/ready"
    assert [name for name in made if ".venvs" not in name] == EVERYTHING
    assert {name for name in made if ".venvs" in name} == {".venvs/test/ready", *READY.values()}
    for name in READY:
        assert made.index(READY[name]) < made.index(name)
    assert "left out: 0" in told


@pytest.mark.parametrize("failing", [".venvs/test/ready", *EVERYTHING])
def test_what_fails_fails_ci(ci, failing: str) -> None:
    code, made, _ = ci(FAILING=failing)
    assert code != 0
    assert [name for name in made if name in (failing, *EVERYTHING)][-1] == failing


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"POLARBEAR_CI_ADAPTERS": "no"}, "test-adapters: POLARBEAR_CI_ADAPTERS=no"),
        ({"FREE_GB": "5"}, "test-adapters: 5 GB are free on this disk, it needs 8 GB"),
        ({"POLARBEAR_CI_SECONDS": "415"}, r"test-cluster: \d+ s of 415 s are over, it may take"),
        ({"FAILING": ".venvs/adapters/ready"}, "test-adapters: its libraries could not be"),
    ],
)
def test_what_is_left_out_is_named_with_its_reason(ci, settings: dict, reason: str) -> None:
    code, made, told = ci(**settings)
    assert code == 0
    assert "test" in made
    assert reason.partition(":")[0] not in made
    assert "left out: 1" in told
    assert re.search(f"^CI: left out make {reason}", told, re.MULTILINE)


def test_environments_that_are_ready_need_neither_disk_nor_an_install(ci) -> None:
    code, made, _ = ci(NOT_READY="0", FREE_GB="0")
    assert (code, made) == (0, [".venvs/test/ready", *EVERYTHING])
