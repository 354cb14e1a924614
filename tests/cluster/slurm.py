"""A real SLURM of three nodes on one machine, each with two GPUs that are none: ``/dev/null``.

It needs Debian's slurmctld, slurmd, slurm-client and munge, and root.
"""

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "srun")
NODES = ("n1", "n2", "n3")
PATIENCE = 480.0  # a machine with other work took half of it

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={here}/munge.socket,cred_expire=5
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool.%n
SlurmctldPidFile={here}/slurmctld.pid
SlurmdPidFile={here}/slurmd.%n.pid
SlurmctldLogFile={here}/slurmctld.log
SlurmdLogFile={here}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=15
KillWait=5
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName={name} Gres=gpu:2 NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 "
    "RealMemory=1000 State=UNKNOWN\n"
)


def why_not() -> str | None:
    """Return why no SLURM can be started here, None if one can."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"needs SLURM, and {', '.join(absent)} is not installed here"
    return None if os.getuid() == 0 else "needs root, to start a SLURM of its own"


@dataclass
class Slurm:
    """A cluster; ``SLURM_CONF`` tells SLURM's programs of it."""

    here: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def ask(self, *words: str) -> str:
        """Run one of SLURM's programs; returns what it prints."""
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def jobs(self) -> list[list[str]]:
        """Return number, state and node of every task of an array that waits or runs."""
        told = self.ask("squeue", "--noheader", "--array", "--format=%K %T %N")
        return [line.split() for line in told.splitlines()]

    def restarts(self, job: str) -> dict[str, int]:
        """Return how often each task of a job was put back into the queue."""
        told = self.ask("scontrol", "show", "job", "--oneliner").splitlines()
        facts = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in told]
        return {f["ArrayTaskId"]: int(f["Restarts"]) for f in facts if f["JobName"] == job}

    def start(self, name: str, *words: str) -> None:
        with (self.here / f"{name}.out").open("ab") as log:
            self.daemons[name] = subprocess.Popen(words, stdout=log, stderr=log)

    def start_node(self, name: str) -> None:
        self.start(name, "slurmd", "-D", "-N", name)

    def kill_node(self, name: str) -> None:
        """Let a node die, with all that it trains."""
        self.daemons[name].kill()
        self.daemons.pop(name).wait()
        # Not those of another SLURM whose nodes have the same names.
        told = {f"SLURMD_NODENAME={name}", f"SLURM_CONF={self.here}/slurm.conf"}
        on_it = [pid for pid in _processes() if told <= set(_environment(pid))]
        for pid in {*map(_step_of, on_it), *on_it}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def clear(self) -> None:
        """Cancel all jobs."""
        self.ask("scancel", "--user=root")
        wait_until(lambda: not self.jobs())

    def end(self) -> None:
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environment(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    return []


def _step_of(pid: int) -> int:
    """Return the process above that answers to the node: slurmstepd, else itself."""
    above = pid
    with suppress(OSError):
        while above > 1:
            name, rest = Path(f"/proc/{above}/stat").read_text().split(" (")[1].rsplit(") ", 1)
            if name == "slurmstepd":
                return above
            above = int(rest.split()[1])
    return pid


def wait_until(so: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Look every now and then; give up after some time."""
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def started(here: Path) -> Iterator[Slurm]:
    """Start munge, the controller and three nodes; end them, and all they train, afterwards."""
    slurm = Slurm(here)
    host = socket.gethostname()
    (here / "state").mkdir()
    here.chmod(0o755)
    conf = CONF.format(host=host, here=here, port=_free_port())
    conf += "".join(NODE.format(name=name, host=host, port=_free_port()) for name in NODES)
    (here / "slurm.conf").write_text(conf)
    for number in (0, 1):
        os.mknod(here / f"nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    gpus = f"NodeName=n[1-3] Name=gpu File={here}/nvidia[0-1]\n"
    (here / "gres.conf").write_text(gpus)
    key = here / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(here / "slurm.conf")
    try:
        own = [f"--{name}-file={here}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        slurm.start(
            "munge", "munged", "--foreground", "--force", f"--socket={here}/munge.socket", *own
        )
        wait_until((here / "munge.socket").exists)
        slurm.start("control", "slurmctld", "-D")
        for name in NODES:
            slurm.start_node(name)
        wait_until(lambda: slurm.ask("sinfo", "--noheader", "--format=%T").split() == ["idle"])
        yield slurm
    finally:
        slurm.end()
        if before is None:
            del os.environ["SLURM_CONF"]
        else:
            os.environ["SLURM_CONF"] = before
