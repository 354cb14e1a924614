"""Runs as an array of SLURM's: one script, which ``sbatch`` submits, here or by hand.

The run folders are the truth: each says what it is asked for, how far it is, and which task of
which array has it. A task resumes its runs, begins those that wait, and goes back into the queue
where it was stopped early.
"""

import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from polarbear.base.errors import PolarbearError, counted
from polarbear.base.files import plain
from polarbear.base.version import __version__
from polarbear.cli.shared.console import console, error_console
from polarbear.cli.shared.elsewhere import Elsewhere
from polarbear.cli.shared.exit_code import ElsewhereError
from polarbear.cli.shared.training import How, Wanted
from polarbear.runs.folder import RunFolder
from polarbear.runs.job import give_to, last_job, take_from_job
from polarbear.runs.waiting import let_wait, waiting_in
from polarbear.settings.settings import Settings, deciding

WARNING_SECONDS = 120  # before a time limit: enough for a step and a checkpoint

#: Words that the script needs as they are, and what to write instead where there is something.
OURS = {"array": "--pack or --at-once", "nodes": "--nodes", "time": "--time"}
OURS |= dict.fromkeys(("job-name", "output", "open-mode", "chdir"), "nothing")

#: What SLURM's programs say where the controller is down, busy or out of reach.
NO_ANSWER = (
    *("unable to contact slurm controller", "socket timed out", "zero bytes were transmitted"),
    *("message send failure", "message receive failure", "communication connection failure"),
    *("in standby mode", "temporarily unable to accept job", "resource temporarily unavailable"),
)

#: What follows the tasks: waits for polarbear and decides whether the task goes back to the queue.
REST = """
# What runs go on from, and their ends: a task that adds to these comes back as often as it likes.
kept() { find "${runs[@]}" -path '*/checkpoint/*.json' -o -name finished.json; } 2>/dev/null
before=$(kept)
stopped=
train &
child=$!
# A time limit is near, or the task is to make room: polarbear writes a checkpoint and ends.
# The signal ends a wait, too, with a code of its own; the next wait returns polarbear's.
trap 'stopped=yes; waited=; stop' TERM USR1 USR2
waited=
until [ "$waited" ]; do waited=yes; wait "$child"; code=$?; done
[ "$code" -ge 0 ] || code=143 # bash may lose the code of what ends as the signal comes
trap '' TERM USR1 USR2

case $code$stopped in
  0*) exit 0 ;;
  75 | 130 | 137 | 143 | *yes) ;; # stopped with a checkpoint, killed, or worth another try
  *) exit "$code" ;;
esac
if [ "$(kept)" = "$before" ] && [ "${SLURM_RESTART_COUNT:-0}" -ge 10 ]; then
  echo "given up with code $code: started $((SLURM_RESTART_COUNT + 1)) times, the last in vain"
  exit "$code"
fi
# A task that was cancelled, or that SLURM itself requeues, is completing: that is left alone.
case $(squeue --noheader --jobs="$task" --format='%T %r') in
  RUNNING* | *TimeLimit*) scontrol requeue "$task" ;;
esac
exit "$code"
"""


@dataclass(frozen=True)
class Array:
    """What one script asks for: runs by task, and what each task needs."""

    packs: tuple[tuple[Path, ...], ...]
    name: str
    script: Path
    gpus: int
    on_gpu: bool
    asked: Elsewhere
    how: How

    def log(self, task: int) -> Path:
        """Return where a task writes."""
        return self.script.parent / f"{task}.log"

    def text(self) -> str:
        """Return the script."""
        return "\n".join([*self._head(), "", *self._tasks(), "", *self._train(), REST])

    def _head(self) -> Iterator[str]:
        runs = counted(sum(map(len, self.packs)), "run")
        yield "#!/bin/bash"
        yield f"# polarbear {__version__}: {runs} in {counted(len(self.packs), 'task')}."
        yield f"# To submit it by hand: sbatch {shlex.quote(str(self.script))}"
        for name, value in self._words().items():
            yield f"#SBATCH --{name}" + ("" if value is None else f"={shlex.quote(value)}")

    def _words(self) -> dict[str, str | None]:
        """Return what ``sbatch`` is told; the user's own words take the place of ours."""
        asked = self.asked
        most = f"%{asked.at_once}" if asked.at_once else ""
        warning = min(WARNING_SECONDS, (seconds(asked.time) or 4 * WARNING_SECONDS) // 4)
        words: dict[str, str | None] = {
            "job-name": self.name,
            "array": f"0-{len(self.packs) - 1}{most}",
            "nodes": str(asked.nodes or 1),
            "ntasks-per-node": "1",
        }
        own = dict(map(_own_word, (word for words in asked.sbatch for word in words)))
        if self.gpus and not any(map(_asks_for_gpus, own.items())):
            words["gpus-per-node"] = str(self.gpus)
        words |= {"time": asked.time} if asked.time else {}
        return {
            **words,
            "chdir": str(Path.cwd()),
            "output": str(self.script.parent).replace("%", "%%") + "/%a.log",
            "open-mode": "append",
            "requeue": None,
            "signal": f"B:TERM@{warning}",
            **own,
        }

    def _tasks(self) -> Iterator[str]:
        yield "task=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
        yield "case $SLURM_ARRAY_TASK_ID in"
        for task, pack in enumerate(self.packs):
            yield f"  {task}) runs=({shlex.join(map(str, pack))}) ;;"
        yield "esac"

    def _train(self) -> Iterator[str]:
        """Define what polarbear is started with."""
        python, nodes = shlex.quote(sys.executable), self.asked.nodes or 1
        per_node = max(self.gpus, 1)
        starts, on_each, stop = python, "", 'kill -TERM "$child"'
        if self.asked.pack in (None, 1) and per_node * nodes > 1:
            yield "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 # without it, restarts may hang"
            starts = f"{python} -m polarbear.cli.shared.torchrun --max-restarts=3"
            starts += f" --nproc-per-node={per_node}"
            starts += " --standalone" if nodes == 1 else ' "${meet[@]}"'
        if nodes > 1:
            on_each = "srun --ntasks-per-node=1 ${SLURM_CPUS_PER_TASK:+-c $SLURM_CPUS_PER_TASK} "
            stop = 'scancel --signal=TERM "$task"'  # srun would kill what it is to pass a TERM to
            yield "# This script runs on the first of the nodes, and there they meet."
            yield f'meet=(--nnodes={nodes} --rdzv-id="$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}"'
            yield "  --rdzv-backend=c10d"
            yield '  --rdzv-endpoint="$(hostname):$((20000 + SLURM_JOB_ID % 20000))")'
        if not any(map(_asks_for_gpus, self._words().items())):
            yield "export CUDA_VISIBLE_DEVICES= # none was asked for, and SLURM may hide none"
        yield "train() {"
        if self.on_gpu:
            yield "  # Never on a CPU in place of a GPU: where none is seen, it is tried again."
            looks = "import torch; seen = torch.cuda.device_count(); "
            looks += f'print("GPUs here:", seen); raise SystemExit(75 * (seen < {self.gpus}))'
            yield f"  {on_each}{python} -c {shlex.quote(looks)} || exit"
        words = shlex.join(["resume", *_how_words(self.how)])
        yield f'  exec {on_each}{starts} -m polarbear {words} "${{runs[@]}}"'
        yield "}"
        yield f"stop() {{ {stop}; }}"


def submit(wanted: Sequence[Wanted], asked: Elsewhere, how: How, beside: Path) -> None:
    """Submit runs as an array whose script is written into ``beside/slurm``.

    What a task that waits or trains already has is left to it.
    """
    if shutil.which("sbatch") is None:
        raise PolarbearError(
            "there is no sbatch here: --on slurm is for a machine that SLURM's jobs are "
            "submitted from, such as a cluster's login node"
        )
    left = list(_not_in_a_job(wanted))
    if not left:
        console().print("Nothing is left to submit.")
        return
    for one in left:
        _refuse_another_way(one)
    array = _array(left, asked, how, beside)
    text = array.text()  # where a word is refused, nothing is written
    array.script.parent.mkdir(parents=True)
    array.script.write_text(text)
    for one in left:
        let_wait(one.folder, one.settings, one.threads)
    for task, pack in enumerate(array.packs):
        for folder in pack:
            give_to(folder, array.name, task, array.log(task))
    tasks = counted(len(array.packs), "task")
    try:
        told = _told(["sbatch", "--parsable", str(array.script)])
    except ElsewhereError as error:
        if error.passing:  # it may have arrived all the same: whoever comes again asks squeue
            raise
        for one in left:
            take_from_job(one.folder)
        if "job array" in str(error):  # most clusters allow a thousand tasks
            raise PolarbearError(f"{error}. Are {tasks} too many? --pack N makes fewer") from error
        raise
    number = told.partition(";")[0].strip()  # a cluster's name may follow
    console().print(
        f"SLURM's job {number} has {counted(len(left), 'run')} in {tasks}: {array.script}, "
        "logs beside it. `polarbear runs` tells how far they are; the same command again submits "
        "what is left.",
        soft_wrap=True,
    )


def _array(wanted: Sequence[Wanted], asked: Elsewhere, how: How, beside: Path) -> Array:
    cpu_alone = all(one.settings.device == "cpu" for one in wanted)
    gpus = int(not cpu_alone if asked.gpus is None else asked.gpus)
    size = asked.pack or 1
    if size > 1 and (asked.nodes or 1) > 1:
        raise PolarbearError("the nodes of a job train each run together: --pack or --nodes")
    if gpus == 0 and any(one.settings.device.startswith("cuda") for one in wanted):
        raise PolarbearError("--gpus 0 leaves no GPU for --device cuda: leave out one of them")
    folders = [one.folder for one in wanted]
    packs = tuple(tuple(folders[i : i + size]) for i in range(0, len(folders), size))
    # Jobs are known by their names: no two have the same, even if submitted at the same time.
    when = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    script = beside / "slurm" / when / "array.sh"
    return Array(packs, f"polarbear-{when}", script, gpus, gpus > 0 and not cpu_alone, asked, how)


def _not_in_a_job(wanted: Iterable[Wanted]) -> Iterator[Wanted]:
    """Leave out what a task that waits or trains has; one of other settings is refused."""
    given = [(one, last_job(one.folder)) for one in wanted]
    names = {job.name for _, job in given if job is not None}
    live = _live(names) if names else {}
    for one, job in given:
        if job is not None and (number := live.get((job.name, job.task))):
            _refuse_others(one, number)
            said = f"{one.folder} is in SLURM's job {number}: left to it"
            error_console().print(said, soft_wrap=True)
        else:
            yield one


def _refuse_others(wanted: Wanted, number: str) -> None:
    """Refuse a run that waits in a job with other settings; one that has begun was compared."""
    if (waiting := waiting_in(wanted.folder)) is None:
        return
    asked = plain(wanted.settings.to_dict())
    if asked["compile"] == "auto":  # the job does as it was told, before there was a choice too
        del asked["compile"]
    others = [name for name, value in asked.items() if waiting.settings.get(name) != value]
    if others:
        raise PolarbearError(
            f"{wanted.folder} waits in SLURM's job {number} with other settings "
            f"({', '.join(others)}): `scancel {number}` first, or choose another folder (--out DIR)"
        )


def _refuse_another_way(wanted: Wanted) -> None:
    """Refuse to go on faster, or in other parts, than a run began: its job resumes it as it is."""
    run = RunFolder(wanted.folder)
    if not (run.path / "manifest.json").exists():
        return
    began, asked = Settings.from_dict(run.manifest()["settings"]), wanted.settings
    names = sorted(deciding("speed") | {"accumulate"})
    if asked.compile == "auto":
        names.remove("compile")
    others = [name for name in names if getattr(began, name) != getattr(asked, name)]
    if others:
        raise PolarbearError(
            f"{run.path} began with other settings ({', '.join(others)}), and a job resumes it as "
            "it began: ask for the same, or go on without --on slurm"
        )


def _live(names: Iterable[str]) -> dict[tuple[str, int], str]:
    """Return the numbers of this user's tasks that wait or train, by job and task."""
    words = ["squeue", "--me", "--noheader", "--array", "--format=%j %K %i"]
    lines = _told([*words, f"--name={','.join(sorted(names))}"], passing=True).splitlines()
    found = (line.split() for line in lines)
    return {(name, int(task)): number for name, task, number in found if task.isdigit()}


def _told(words: list[str], *, passing: bool = False) -> str:
    """Return what a program of SLURM's prints; ``passing`` if it may only ever fail for a while."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        said = " ".join(done.stderr.split())
        passing |= any(known in said.lower() for known in NO_ANSWER)
        raise ElsewhereError(f"`{shlex.join(words)}` failed: {said}", passing)
    return done.stdout


def _own_word(word: str) -> tuple[str, str | None]:
    """Read a word for ``sbatch``: NAME=VALUE, or NAME alone."""
    name, equals, value = word.removeprefix("--").partition("=")
    if not re.fullmatch("[a-z][a-z0-9-]+", name):
        raise PolarbearError(f"--sbatch {word}: write NAME=VALUE with a long name: partition=long")
    if name in OURS:
        raise PolarbearError(f"--sbatch {word}: the script has its own, write {OURS[name]} instead")
    return name, value if equals else None


def _asks_for_gpus(word: tuple[str, str | None]) -> bool:
    """Whether a word for ``sbatch`` is about GPUs; ``gres`` may be about other things alone."""
    name, value = word
    return name.startswith("gpus") or (name in ("gres", "tres-per-node") and "gpu" in (value or ""))


def _how_words(how: How) -> list[str]:
    """Return the flags that say how to train, as far as they are not the usual ones."""
    found: list[str] = []
    for one in fields(How):
        value, name = getattr(how, one.name), f"--{one.name.replace('_', '-')}"
        if value != one.default:
            found += [name] if value is True else [name, str(value)]
    return found


def seconds(limit: str | None) -> int | None:
    """Return a time limit as SLURM writes it in seconds; None for what is none.

    >>> [seconds(limit) for limit in ("90", "90:30", "1:30:30", "1-12", "1-12:30", "soon")]
    [5400, 5430, 5430, 129600, 131400, None]
    """
    if limit is None or not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", limit):
        return None
    days, _, rest = limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if days:  # hours, minutes, seconds
        parts += [0] * (3 - len(parts))
    elif len(parts) < 3:  # minutes, seconds
        parts = [0, *parts, *[0] * (2 - len(parts))]
    return int(days or 0) * 86_400 + parts[0] * 3_600 + parts[1] * 60 + parts[2]
