"""What ``polarbear run`` and ``polarbear resume`` share: options, sinks, progress, the outcome."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text
from tyro.conf import arg

from polarbear.base.errors import PolarbearError, install_line
from polarbear.base.interrupt import STOPPED
from polarbear.cli.shared.console import console
from polarbear.cli.shared.live import watch
from polarbear.cli.shared.options import Root
from polarbear.cli.shared.outcome import print_outcome
from polarbear.methods.catalogue import METHODS
from polarbear.runs.folder import RunFolder
from polarbear.settings.settings import Settings

if TYPE_CHECKING:
    from polarbear.engine.trainer import Recorder


@dataclass(frozen=True)
class How:
    """What does not change a run's scores."""

    root: Root = None
    tensorboard: Annotated[
        bool,
        arg(help="Write TensorBoard's files into the run folder too.", help_behavior_hint=""),
    ] = False
    mlflow: Annotated[
        str | None,
        arg(metavar="URI", help="Send scores to this MLflow server too.", help_behavior_hint=""),
    ] = None
    save_every: Annotated[
        float,
        arg(metavar="SECONDS", help="A checkpoint that often, and after each task."),
    ] = 60.0

    def __post_init__(self) -> None:
        """Refuse a time that cannot be."""
        if not self.save_every >= 0:
            raise PolarbearError(f"--save-every must be at least 0, not {self.save_every}")


def engine() -> ModuleType:
    """Return the engine's ``session`` module; without PyTorch, say what to install."""
    try:
        from polarbear.launch import runner as session
    except ModuleNotFoundError as error:
        if error.name in ("torch", "safetensors"):
            raise PolarbearError(f"learning needs {error.name}: {install_line('torch')}") from error
        raise
    return session


def learn(go: Callable[..., bool], folder: Path, settings: Settings, how: How) -> None:
    """Call the engine's ``run`` or ``resume``, show progress and print what came out."""
    with ExitStack() as stack:
        recorders = [stack.enter_context(sink) for sink in sinks(folder, settings, how)]
        display = stack.enter_context(watch())
        common: dict[str, Any] = {"root": how.root, "save_every": how.save_every}
        try:
            ended = go(recorders=(display, *recorders), on_step=display, **common)
        except Exception as error:
            if hint := advice(settings.method, error):
                error.add_note(hint)  # the traceback ends with it
            raise
        if not ended:
            raise SystemExit(STOPPED)
    screen = console()
    title = f" on {settings.benchmark}, order {settings.order}\n"
    screen.print(Text(settings.method, "bold") + Text(title, "none"))
    print_outcome(screen, RunFolder.open(folder))
    screen.print(f"\nThe run is in {folder}", soft_wrap=True)


def advice(method: str, error: Exception) -> str | None:
    """Say who knows more of an error that may well be the fault of a method of one's own."""
    if method in METHODS or isinstance(error, (PolarbearError, OSError)):
        return None
    call = f"from polarbear.learn import check_learner; check_learner({method!r})"
    return f'`python -c "{call}"` says more of {method}'


def sinks(
    folder: Path, settings: Settings, how: How
) -> Iterator["AbstractContextManager[Recorder]"]:
    """Return the sinks that were asked for, each to be entered."""
    from polarbear.runs.sinks import MLflowSink, TensorBoardSink

    if how.tensorboard:
        yield TensorBoardSink(folder / "tensorboard", settings)
    if how.mlflow:
        yield MLflowSink(how.mlflow, settings, folder=folder)
