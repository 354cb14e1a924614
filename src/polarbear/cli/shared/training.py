"""What ``polarbear run`` and ``polarbear resume`` share: a run, and how it is trained."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from polarbear.base.dotted import find_dotted
from polarbear.base.errors import PolarbearError, install_line
from polarbear.base.interrupt import STOPPED
from polarbear.cli.shared.console import console
from polarbear.cli.shared.live import watch
from polarbear.cli.shared.options import Root, flag
from polarbear.cli.shared.outcome import print_outcome
from polarbear.methods.catalogue import METHODS
from polarbear.runs.folder import RunFolder
from polarbear.settings.settings import Settings

if TYPE_CHECKING:
    from polarbear.engine.recorder import Recorder


@dataclass(frozen=True)
class How:
    """What does not change a run's scores."""

    root: Root = None
    tensorboard: Annotated[bool, flag("Write TensorBoard's files into the run folder too.")] = False
    mlflow: Annotated[str | None, flag("Send scores to this MLflow server too.", "URI")] = None
    wandb: Annotated[
        str | None, flag("Send scores to this Weights & Biases project too.", "PROJECT")
    ] = None
    recorder: Annotated[
        str | None,
        flag("Tell a recorder of your own too, made with folder and settings.", "PATH:CLASS"),
    ] = None
    save_every: Annotated[
        float, flag("A checkpoint that often, and after each task.", "SECONDS")
    ] = 60.0

    def __post_init__(self) -> None:
        """Refuse a time that cannot be."""
        if not self.save_every >= 0:
            raise PolarbearError(f"--save-every must be at least 0, not {self.save_every}")

    def sinks(
        self, folder: Path, settings: Settings
    ) -> Iterator["AbstractContextManager[Recorder]"]:
        """Return the sinks that were asked for, each to be entered."""
        from polarbear.runs.sinks import MLflowSink, TensorBoardSink, WandbSink

        if self.tensorboard:
            yield TensorBoardSink(folder / "tensorboard", settings)
        if self.mlflow:
            yield MLflowSink(self.mlflow, settings, folder=folder)
        if self.wandb:
            yield WandbSink(self.wandb, settings, folder=folder)
        if self.recorder:
            yield own_recorder(self.recorder, folder, settings)


@dataclass(frozen=True)
class Wanted:
    """A run to do what is left of; one that has ``begun`` is as its folder says, root and all.

    Without a number of ``threads``, a new one takes as many as PyTorch does.
    """

    name: str
    folder: Path
    settings: Settings
    begun: bool = False
    threads: int | None = None

    def take_threads(self) -> None:
        """Compute with its threads from now on."""
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)

    def train(self, how: How, label: str = "") -> None:
        """Train it alone, show progress, by a label if there is one, and print what came out."""
        session = engine()
        from polarbear.engine.world import the_world

        self.take_threads()
        go = session.resume if self.begun else partial(session.train, self.settings)
        if not the_world().is_first:  # it takes part, and the first one shows and writes
            if not go(self.folder, root=how.root, save_every=how.save_every):
                raise SystemExit(STOPPED)
            return
        with ExitStack() as stack:
            sinks = how.sinks(self.folder, self.settings)
            recorders = [stack.enter_context(sink) for sink in sinks]
            display = stack.enter_context(watch(self.folder, label))
            try:
                ended = go(
                    self.folder,
                    recorders=(display, *recorders),
                    on_step=display,
                    root=how.root,
                    save_every=how.save_every,
                )
            except Exception as error:
                if hint := advice(self.settings.method, error):
                    error.add_note(hint)  # the traceback ends with it
                raise
            if not ended:
                raise SystemExit(STOPPED)
        screen = console()
        title = f" on {self.settings.benchmark}, order {self.settings.order}\n"
        screen.print(Text(self.settings.method, "bold") + Text(title, "none"))
        print_outcome(screen, RunFolder.open(self.folder))
        screen.print(f"\nThe run is in {self.folder}", soft_wrap=True)


def own_recorder(path: str, folder: Path, settings: Settings) -> "AbstractContextManager[Recorder]":
    """Make a recorder by its dotted path; one that is no context is left as it is at the end."""
    made = find_dotted(path, "Class")(folder, settings)
    absent = [name for name in ("epoch", "scores", "answers") if not hasattr(made, name)]
    if absent:
        raise PolarbearError(
            f"{path} has no {' and no '.join(absent)}: let it inherit from polarbear.learn.Recorder"
        )
    return made if hasattr(made, "__exit__") else nullcontext(made)


def engine() -> ModuleType:
    """Return the engine's ``runner`` module; without PyTorch, say what to install."""
    try:
        from polarbear.launch import runner
    except ModuleNotFoundError as error:
        if error.name in ("torch", "safetensors"):
            raise PolarbearError(f"learning needs {error.name}: {install_line('torch')}") from error
        raise
    return runner


def advice(method: str, error: Exception) -> str | None:
    """Say who knows more of an error that may well be the fault of a method of one's own."""
    if method in METHODS or isinstance(error, (PolarbearError, OSError)):
        return None
    call = f"from polarbear.learn import check_learner; check_learner({method!r})"
    return f'`python -c "{call}"` says more of {method}'
