"""Where runs are trained: in this process, or by a cluster."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from tyro.conf import UseAppendAction

from polarbear.base.errors import PolarbearError
from polarbear.cli.shared.options import flag


@dataclass(frozen=True)
class Elsewhere:
    """Where runs are trained, and what a cluster is asked for."""

    on: Annotated[
        Literal["here", "slurm"], flag("Who trains: this machine, or SLURM in jobs of its own.")
    ] = "here"
    gpus: Annotated[
        int | None, flag("GPUs of each node of a job.", "INT", default="1, with --device cpu none")
    ] = None
    nodes: Annotated[
        int | None, flag("Nodes of a job, which train each run together.", "INT", default="1")
    ] = None
    time: Annotated[
        str | None, flag("A job's time limit; it may be shorter than a run.", "H:MM:SS")
    ] = None
    pack: Annotated[
        int | None, flag("Runs of a job: side by side on its GPUs.", "INT", default="1")
    ] = None
    at_once: Annotated[int | None, flag("Jobs at a time, at most.", "INT")] = None
    sbatch: Annotated[
        UseAppendAction[tuple[tuple[str, ...], ...]],
        flag("Any other words for sbatch: partition=long mem=32G.", "NAME=VALUE …"),
    ] = ()

    def refuse_what_cannot_be(self) -> None:
        """Refuse numbers below one, and wishes that nobody would hear."""
        given: dict[str, Any] = {
            one.name: value for one in fields(Elsewhere) if (value := getattr(self, one.name))
        }
        if self.on == "here" and (unheard := [name for name in given if name != "on"]):
            name = unheard[0].replace("_", "-")
            raise PolarbearError(f"--{name} is for jobs of a cluster: add --on slurm")
        for name, least in (("gpus", 0), ("nodes", 1), ("pack", 1), ("at_once", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise PolarbearError(
                    f"--{name.replace('_', '-')} must be at least {least}, not {value}"
                )
