"""A table of what the same raw scores score by other decision rules."""

from polarbear.report.options import Options
from polarbear.report.read.decided import RULES, any_kept, decided
from polarbear.report.read.groups import Runs
from polarbear.report.read.words import of_fewer, spans
from polarbear.report.tables.formats import Cell, Table
from polarbear.report.tables.results import WHO, full, mean_interval
from polarbear.score.decide import rule_in_words


def decision_tables(runs: Runs, options: Options) -> list[Table]:
    """Return pw-JS after the last task by each rule, a line per method; none without raw scores."""
    if not any_kept(runs):
        return []  # the figure of that name says why
    found = decided(runs, options.root)
    rows = []
    records: list[tuple[object, ...]] = [
        ("method", "rule", "oracle", "task", "mean", "std", "half_width", "runs"),
    ]
    for group in found.groups:
        by_rule = {rule: found.of(group, rule) for rule in RULES}
        numbers = (
            Cell(mean_interval(one.mean, one.half_width) + of_fewer(one.n, group.count))
            for one in by_rule.values()
        )
        who = (group.title, str(group.count), spans(group.orders), spans(group.seeds))
        rows.append((*map(Cell, who), *numbers))
        for rule, one in by_rule.items():
            about = (group.name, rule, found.is_oracle(group, rule), found.last)
            records.append((*about, *map(full, (one.mean, one.std, one.half_width)), one.n))
    head = (*WHO, *map(rule_in_words, RULES))
    words = (
        f"{found.words} by decision rule, {runs.benchmark}, test images, of the runs that have "
        "kept their raw scores, with 95 % intervals over runs. Own is what the runs predicted; an "
        "oracle is told the hierarchy, which no learner is. A dash: the method infers no parents, "
        "or its summary is from before the rule was asked."
    )
    return [Table("decisions", words, head, tuple(rows), tuple(records))]
