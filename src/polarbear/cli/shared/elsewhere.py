"""Where runs are trained: in this process, or by a cluster."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from tyro.conf import UseAppendAction

from polarbear.base.errors import PolarbearError
from polarbear.cli.shared.options import flag

#: Who hears a wish that is not for SLURM alone.
HEARD_BY = {"gpus": ("slurm", "ray"), "at_once": ("slurm", "ray"), "ray_address": ("ray",)}


@dataclass(frozen=True)
class Elsewhere:
    """Where runs are trained, and what a cluster is asked for."""

    on: Annotated[
        Literal["here", "slurm", "ray"],
        flag("Who trains: this machine, SLURM in jobs of its own, or Ray's machines."),
    ] = "here"
    gpus: Annotated[
        float | None,
        flag(
            "GPUs of each node of a job; with Ray, of each run: 0.25 lets four share one.",
            "NUMBER",
            default="1, with --device cpu none",
        ),
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
    at_once: Annotated[int | None, flag("Jobs, or with Ray runs, at a time, at most.", "INT")] = (
        None
    )
    sbatch: Annotated[
        UseAppendAction[tuple[tuple[str, ...], ...]],
        flag("Any other words for sbatch: partition=long mem=32G.", "NAME=VALUE …"),
    ] = ()
    ray_address: Annotated[
        str | None,
        flag(
            "Ray's cluster: HOST:PORT, auto for the one of this machine, local for none.",
            "ADDRESS",
            default="$RAY_ADDRESS, else that of this machine, else local",
        ),
    ] = None

    def refuse_what_cannot_be(self) -> None:
        """Refuse numbers below one, and wishes that nobody would hear."""
        given: dict[str, Any] = {
            one.name: value for one in fields(Elsewhere) if (value := getattr(self, one.name))
        }
        for name in given:
            heard = HEARD_BY.get(name, ("slurm",))
            if name != "on" and self.on not in heard:
                what, places = name.replace("_", "-"), " or ".join(f"--on {one}" for one in heard)
                remedy = f"add {places}" if self.on == "here" else f"it goes with {places} alone"
                raise PolarbearError(f"--{what} is for jobs of a cluster: {remedy}")
        if self.on == "slurm" and self.gpus is not None and self.gpus % 1:
            raise PolarbearError(
                f"SLURM gives whole GPUs, not {self.gpus:g}: --gpus 1 --pack 4 trains four runs "
                "on one"
            )
        for name, least in (("gpus", 0), ("nodes", 1), ("pack", 1), ("at_once", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise PolarbearError(
                    f"--{name.replace('_', '-')} must be at least {least}, not {value:g}"
                )
