"""``polarbear methods``: what can be run by name."""

from typing import Any

from polarbear.base.errors import PolarbearError
from polarbear.cli.shared.console import console, plain_table, print_json, print_table
from polarbear.cli.shared.options import Json
from polarbear.methods.catalogue import method_names, summary
from polarbear.methods.registry import resolve

NEEDS = ("replay", "keep", "head")


def methods(*, json: Json = False) -> None:
    """List the methods, of polarbear and of installed packages, and what they need."""
    lines = [_line(name) for name in method_names()]
    if json:
        print_json(lines)
        return
    screen = console()
    table = plain_table("method", *NEEDS, "")
    for line in lines:
        table.add_row(line["name"], *(line[need] or "–" for need in NEEDS), line["summary"])
    print_table(screen, table)
    screen.print(
        "\nreplay: how stored images are mixed in; keep: the weights of a task's best epoch or its "
        "last; head: the classifier. A class of your own runs by its path: "
        "polarbear run package.module:Class",
        style="dim",
    )
    for problem in sorted({line["problem"] for line in lines if line["problem"]}):
        screen.print(problem, style="yellow", markup=False, soft_wrap=True)


def _line(name: str) -> dict[str, Any]:
    line = {"name": name, "summary": summary(name)}
    try:
        method = resolve(name)
    except PolarbearError as error:
        return line | dict.fromkeys(NEEDS) | {"problem": str(error)}
    line["summary"] = method.summary or line["summary"]
    return line | {need: getattr(method, need) for need in NEEDS} | {"problem": None}
