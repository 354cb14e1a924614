"""What a run found: its score table, and the paper's questions answered in a sentence each."""

from itertools import accumulate

import numpy as np
from rich.console import Console
from rich.table import Table

from polarbear.cli.shared.console import plain_table, share
from polarbear.runs.folder import RunFolder
from polarbear.score.table import ScoreTable

COLUMNS = {
    "R_j": "pw_jaccard",
    "super": "pw_jaccard/superclass",
    "sub": "pw_jaccard/subclass",
    "Jaccard": "jaccard",
    "implic.": "implication",
    "sibling": "sibling_error",
    "late": "late_recall",
    "labels": "label_ratio",
}
LEGEND = (
    "R_j: precision-weighted Jaccard similarity of all images seen so far; super, sub: among "
    "superclasses, among leaves. implic.: how often a named subclass comes with its superclass. "
    "sibling: how often a wrong sibling is named (lower is better). late: how often a superclass "
    "is named on images of subclasses learnt later. labels: predicted ÷ true number of labels."
)

QUESTIONS = (
    (
        "implication",
        "Does it still say the superclass?",
        "of the subclasses it names come with their superclass.",
    ),
    (
        "sibling_error",
        "Does it name wrong siblings?",
        "of the images get a wrong sibling's label.",
    ),
    (
        "late_recall",
        "Does it know an old superclass on new subclasses?",
        "of the images of later subclasses get it.",
    ),
)


def print_outcome(screen: Console, folder: RunFolder) -> None:
    """Print the scores on test images after each finished task, and what the last ones mean."""
    scores = folder.table()
    sizes = [len(task) for task in folder.manifest()["classes"]]
    screen.print(outcome_table(scores, sizes))
    done = np.flatnonzero(~np.isnan(scores.r))
    if not done.size:
        return
    screen.print()
    for name, question, meaning in QUESTIONS:
        answer = float(scores.scores[name][done[-1]])
        if not np.isnan(answer):
            screen.print(f"{question} {100 * answer:.0f} % {meaning}", soft_wrap=True)
    screen.print(f"\n{LEGEND}", style="dim")


def outcome_table(scores: ScoreTable, sizes: list[int]) -> Table:
    """Give the scores after each task that has any, one line each."""
    table = plain_table("after", "seen", *COLUMNS)
    for after, seen in enumerate(accumulate(sizes)):
        if not np.isnan(scores.r[after]):
            numbers = (share(float(scores.scores[name][after])) for name in COLUMNS.values())
            table.add_row(f"task {after}", str(seen), *numbers)
    return table
