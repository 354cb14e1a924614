"""The command line: ``polarbear COMMAND …``, one module per command.

A command's module is imported only when it is called, so that the others' cost nothing.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from polarbear.base.errors import PolarbearError, install_line, unknown_name
from polarbear.base.interrupt import STOPPED, keep_exit_code, unwind_on_ctrl_c
from polarbear.base.names import printable
from polarbear.base.out_of_memory import OutOfMemoryError, enough_memory
from polarbear.base.version import __version__

#: What ``polarbear --help`` says of each command; its module and function have its name.
COMMANDS = {
    "benchmarks": "list the benchmarks",
    "describe": "tell a benchmark's tasks, classes and counts",
    "methods": "list the methods",
    "run": "train a method on a benchmark",
    "resume": "resume runs that were stopped",
    "runs": "list runs and how far they are",
    "predict": "show images to what a run has learnt",
    "report": "make figures, tables and a page of runs",
    "decide": "score kept raw scores by other decision rules",
    "score": "score predictions made elsewhere",
    "new-benchmark": "make a benchmark from your own data",
    "fetch": "download a data set: cifar100",
    "pack": "resize and pack a data set: imagenet",
    "summarise": "write finished runs as small result files",
    "compare": "compare runs with each other, or with the paper's tables",
}


def load(name: str) -> Callable[..., None]:
    """Import the function of a command."""
    module = name.replace("-", "_")
    function: Callable[..., None] = getattr(import_module(f"{__name__}.commands.{module}"), module)
    return function


class ToStderr(logging.Handler):
    """Writes to what stderr is by then: while a bar is shown, this puts lines above it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, with its traceback."""
        try:
            print(printable(self.format(record)), file=sys.stderr)
        except Exception:  # no line is worth a run: a closed pipe, a library's faulty message
            self.handleError(record)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code.

    0 when it is done, 2 for anything refused, 75 for what may go well another time, 130 for what
    was asked to stop.
    """
    try:
        import rich  # noqa: F401
        import tyro  # noqa: F401
    except ImportError:
        print(f"polarbear: the command line needs: {install_line('cli')}", file=sys.stderr)
        return 2
    from polarbear.cli.shared.console import write_what_can_be_written

    write_what_can_be_written()
    logging.basicConfig(format="%(message)s", level=logging.WARNING, handlers=[ToStderr()])
    code = _guarded(list(sys.argv[1:] if argv is None else argv))
    keep_exit_code()
    return code


def _guarded(arguments: list[str]) -> int:
    try:
        _run(arguments)
        if sys.stdout is not None:  # as it is where whoever called us has closed it
            sys.stdout.flush()
    except OutOfMemoryError as error:
        from polarbear.cli.shared.exit_code import exit_code

        print(f"polarbear: {error}", file=sys.stderr)  # a prettier line needs more memory
        return exit_code(error)
    except BrokenPipeError:
        # Whoever read our output, such as head, has had enough; Python must not flush once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (PolarbearError, OSError) as error:
        from polarbear.cli.shared.console import said
        from polarbear.cli.shared.exit_code import exit_code

        return _refuse(said(error), exit_code(error))
    except KeyboardInterrupt:
        return _refuse("stopped", code=STOPPED)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _refuse(message: str, code: int = 2) -> int:
    from polarbear.cli.shared.console import error_console

    error_console().print(f"polarbear: {message}", style="red", soft_wrap=True)
    return code


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        _help()
        return
    if arguments[0] == "--version":
        print(f"polarbear {__version__}")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    if name not in ("run", "resume"):  # which leave nothing to tidy: a run's files are always whole
        unwind_on_ctrl_c()
    with enough_memory("close other programs, or do less at a time"):
        import tyro

        function = load(name)
        if name == "run":  # whose flags depend on the method, its first word
            function(rest)
        else:
            config = (tyro.conf.FlagCreatePairsOff,)
            tyro.cli(function, prog=f"polarbear {name}", args=rest, config=config)


def _help() -> None:
    print("Incremental learning with coarse and fine labels: the IIRC benchmark.\n")
    print("usage: polarbear COMMAND …\n")
    for name, summary in COMMANDS.items():
        print(f"  {name:<15}{summary}")
    print("\npolarbear COMMAND --help tells a command's options; polarbear --version the version.")
