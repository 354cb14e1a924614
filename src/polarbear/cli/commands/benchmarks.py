"""``polarbear benchmarks``: what can be loaded by name."""

from typing import Any

from polarbear.cli.shared.console import console, plain_table, print_json, print_table
from polarbear.cli.shared.options import Json
from polarbear.named.registry import benchmarks as registered


def benchmarks(*, json: Json = False) -> None:
    """List the benchmarks: name and version, tasks, classes, published class orders."""
    lines: list[dict[str, Any]] = [
        {
            "name": one.name,
            "version": one.version,
            "tasks": len(orders[0]),
            "classes": len(orders[0].classes),
            "orders": len(orders),
            "summary": one.summary,
        }
        for one, orders in ((one, one.orders()) for one in registered())
    ]
    if json:
        print_json(lines)
        return
    table = plain_table("benchmark", "tasks", "classes", "orders", "")
    for line in lines:
        numbers = (f"{line[key]:,}" for key in ("tasks", "classes", "orders"))
        table.add_row(f"{line['name']}-v{line['version']}", *numbers, line["summary"])
    print_table(console(), table)
