"""What a run found: its score table, and the paper's questions answered in a sentence each."""

from collections.abc import Mapping
from itertools import accumulate

import numpy as np
from rich.console import Console
from rich.table import Table

from polarbear.cli.shared.console import plain_table, print_table, share
from polarbear.runs.folder import RunFolder
from polarbear.runs.result_file import cases_after
from polarbear.score.catalogue import shown_scores
from polarbear.score.table import ScoreTable


def print_outcome(screen: Console, folder: RunFolder) -> None:
    """Print the scores on test images after each finished task, and what the last ones mean."""
    scores = folder.table()
    seen = list(accumulate(len(task) for task in folder.manifest()["classes"]))
    done = np.flatnonzero(~np.isnan(scores.r)).tolist()
    print_table(screen, outcome_table(scores, {after: seen[after] for after in done}))
    if not done:
        return
    screen.print()
    cases = cases_after(folder, done[-1])
    for name, _, words in shown_scores():
        answer = scores.at(name, done[-1])
        if words.asked and not np.isnan(answer):
            # Of two cases, 100 % says little.
            of = f" ({cases[name]:,} on {cases['images']:,} images)" if name in cases else ""
            told = f"{100 * answer:.0f} % of {words.share_of}{of} {words.answer}"
            screen.print(f"{words.asked} {told}", soft_wrap=True)
    screen.print(f"\n{legend()}", style="dim")


def outcome_table(scores: ScoreTable, seen: Mapping[int, int]) -> Table:
    """Return a line of scores after each of the tasks in ``seen``, by number of classes seen."""
    columns = {name: words.column for name, _, words in shown_scores() if words.column}
    table = plain_table("after", "seen", *columns.values())
    for after, classes in seen.items():
        numbers = (share(scores.at(name, after)) for name in columns)
        table.add_row(f"task {after}", str(classes), *numbers)
    return table


def legend() -> str:
    """Return what the columns of the table mean."""
    told = (words for _, _, words in shown_scores() if words.legend)
    return " ".join(f"{words.column}: {words.legend}" for words in told)
