"""What pages say of our results is what the files in ``results`` say."""

import csv
import json
import re
import shutil
from pathlib import Path
from statistics import correlation, mean, stdev
from types import ModuleType

import pytest

from doc_pages import PAGES, ROOT, bench_script
from polarbear.base.files import plain
from polarbear.cli.commands.run import plan
from polarbear.methods.catalogue import METHODS
from polarbear.report.read.beside_paper import after_task, beside_paper
from polarbear.report.read.groups import Group
from polarbear.report.read.paper import Published, paper_results
from polarbear.report.read.runs import read_runs

RESULTS = ROOT / "results" / "iirc-cifar"
BENCH_RESULTS = ROOT / "bench" / "results"
README = PAGES["README.md"]
WITH_MEANS = ("agem", "er", "finetune", "icarl-cnn", "icarl-norm", "kin", "lucir")
FOUND = ("parents_right", "parents_wrong", "parents_false")


def runs(method: str) -> list[dict]:
    files = sorted((RESULTS / method).glob("order-*.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def likeliest(run: dict) -> list[float]:
    """Return R_j by the likeliest class, which earlier files have under another name."""
    return run["r_top1"] if "r_top1" in run else run["r_by_rule"]["top1"]


def cells(line: str) -> list[str]:
    return [cell.strip(" *") for cell in line.strip().strip("|").split("|")]


def shown(scores: list[float]) -> str:
    return f"{mean(scores):.3f} ({stdev(scores):.3f})"


@pytest.mark.parametrize("method", WITH_MEANS)
def test_the_means_of_a_page_are_those_of_the_files(method: str) -> None:
    page, found = PAGES[f"docs/methods/{method}.md"], runs(method)
    tables = re.search(
        r"^(\| task \|.*)\n\|[-|]+\n(?:.*\n)*?(\| (?:Kin, )?mean \(std\).*)", page, re.M
    )
    said = dict(zip(cells(tables[1])[1:], cells(tables[2])[1:], strict=True))
    due = {task: [run["r"][int(task)] for run in found] for task in said if task.isdigit()}
    assert {task: shown(scores) for task, scores in due.items()} == {t: said[t] for t in due}
    assert len(due) >= 5
    if "all tasks" in said:
        assert said["all tasks"] == shown([mean(run["r"]) for run in found])


@pytest.mark.parametrize("method", ["er", "finetune", "icarl-cnn", "icarl-norm", "lucir"])
def test_what_the_likeliest_class_gives_is_that_of_the_files(method: str) -> None:
    page, found = PAGES[f"docs/methods/{method}.md"], runs(method)
    (tasks,) = re.findall(r"^\| task \|(.*)\|$", page.partition("\n| mean (std)")[0], re.M)[-1:]
    (said,) = re.findall(r"^\| the likeliest class alone .*?\|(.*)\|$", page, re.M)
    scores = {str(task): [likeliest(run)[task] for run in found] for task in range(22)}
    scores["all tasks"] = [mean(likeliest(run)) for run in found]
    due = [mean(scores[task]) for task in cells(tasks)]
    assert cells(said) == [f"{score:.3f}" for score in due]


ER_B = "ablations.ERAuthorsWeights"
#: Methods whose task 0 is the same but for the weights that are kept.
LINEAR = (
    "er",
    "finetune",
    "icarl-cnn",
    "er-infinite",
    "incremental-joint",
    "agem",
    "mask-seen",
    "ewc",
    "si",
    "mas",
    "rwalk",
)


def our_task_0() -> tuple[dict[str, dict[int, float]], list[list[float]]]:
    """Return R_0 of runs from our first weights, by method and order, and by order alone."""
    of_method = {name: on_task_0(RESULTS / name) for name in LINEAR}
    by_order = [[s[order] for s in of_method.values() if order in s] for order in range(10)]
    return of_method, by_order


def test_what_task_0_says_of_seed_100_is_that_of_the_files() -> None:
    of_method, ours = our_task_0()
    page = " ".join(PAGES["docs/methods/er.md"].split())
    ten = [f"{mean(of_method[name].values()):.3f}" for name in ("er", "finetune", "icarl-cnn")]
    assert "Seed 100 has {}, {} and {} in ER, finetune and iCaRL-CNN".format(*ten) in page
    apart = sum((x - mean(some)) ** 2 for some in ours for x in some)
    runs_in_all = sum(map(len, ours))
    spread = (apart / (runs_in_all - 10)) ** 0.5
    assert f"of {spread:.3f} ({runs_in_all} runs of {len(of_method)} methods," in page
    assert {1, 2, 3} < {*sorted(range(10), key=lambda order: mean(ours[order]))[:4]}


def test_what_the_authors_weights_are_worth_on_task_0_is_that_of_the_files() -> None:
    page, er = " ".join(PAGES["docs/methods/er.md"].split()), our_task_0()[0]["er"]
    whole = on_task_0(BENCH_RESULTS / "22-tasks" / "iirc-cifar" / ER_B)
    sets = {name: {n: s[0] for n, s in enumerate(in_set(name)) if s} for name in "AC"} | {
        "B": whole
    }
    gains = {name: {n: score - er[n] for n, score in of.items()} for name, of in sets.items()}
    a, b, c = ([*gains[name].values()] for name in "ABC")
    without_8 = [gain for order, gain in gains["C"].items() if order != 8]
    said = f"| {gained(a)} | {gained(b)} | {gained(c)}; without order 8, {gained(without_8)} |"
    assert f"| all orders of the set {said}".replace("-", "−") in page
    few = [[x for order, x in gains[name].items() if order not in (1, 2, 3)] for name in "ABC"]
    words = "| without orders 1 to 3 | {} | {} (four orders) | {} |"
    assert words.format(*map(gained, few)).replace("-", "−") in page
    assert all(gains[name][order] > 0 for name in "ABC" for order in (1, 2, 3))
    ours = [mean(scores) for scores in our_task_0()[1]]
    for names, words in (
        ("AB", "from the authors' draw gain {} on ours, order by order;"),
        ("ABC", "a run that did not take off, {}."),
    ):
        theirs = authors_task_0(names)
        assert words.format(gained([mean(theirs[o]) - ours[o] for o in range(10)])) in page
    b_ends = [run["r"][21] for run in runs("../../bench/results/22-tasks/iirc-cifar/" + ER_B)]
    low = f"{0.13 - mean(b_ends):.3f} ± {stdev(b_ends) / len(b_ends) ** 0.5:.3f}"
    assert f"it is {low} (standard error) below the paper" in page


def on_task_0(folder: Path) -> dict[int, float]:
    """Return R_0 by order."""
    files = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("order-*.json")]
    return {run["order"]: run["r"][0] for run in files}


def authors_task_0(sets: str) -> list[list[float]]:
    """Return R_0 of runs from the authors' first weights, by order."""
    found = [[score for name in sets for score in in_set(name)[order]] for order in range(10)]
    whole = ("22-tasks/{}IncrementalJoint{}", "22-tasks/{}ERInfinite{}")
    for name in ("6-tasks/{}ICarlCNN{}", *whole):
        folder = BENCH_RESULTS / name.format("iirc-cifar/ablations.", "AuthorsWeights")
        for order, score in on_task_0(folder).items():
            found[order].append(score)
    return found


def in_set(name: str) -> list[list[float]]:
    """Return R_0 of the runs of a set, by order."""
    found: list[list[float]] = [[] for _ in range(10)]
    with (BENCH_RESULTS / "task-0.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["runs"] == name:
                found[int(row["order"])].append(float(row["test"]))
    return found


def gained(gains: list[float]) -> str:
    """Return a mean gain and its standard error, as pages have them."""
    return f"{mean(gains):.3f} ± {stdev(gains) / len(gains) ** 0.5:.3f}"


def test_what_seeds_are_worth_on_task_0_is_that_of_the_file() -> None:
    page = " ".join(PAGES["docs/methods/er.md"].split())
    first, *others = ([score for (score,) in in_set(f"F {seed}")] for seed in range(100, 104))
    together = [mean(scores) for scores in zip(*others, strict=True)]
    rows = {f"F, seed {seed}": scores for seed, scores in enumerate(others, start=101)}
    for name, scores in (rows | {"the three, each order's mean": together}).items():
        gains = [new - old for new, old in zip(scores, first, strict=True)]
        assert f" | {name} | {shown(scores)} | {gained(gains)} |" in page
    assert f" | F, seed 100 | {shown(first)} | |" in page
    assert f"means have a standard deviation of {stdev(map(mean, others)):.3f}." in page
    assert sorted(range(10), key=gains.__getitem__)[-2:] == [2, 9]
    rest = [gain for order, gain in enumerate(gains) if order not in (2, 9)]
    assert f"Orders 2 and 9 gain most, and without them it is {gained(rest)}." in page
    own, again = ({o: s[0] for o, s in enumerate(in_set(name)) if s} for name in "DE")
    both = [own[order] - again[order] for order in own.keys() & again.keys()]
    assert len(both) == 3
    assert f"end {mean(both):.3f} above seed 100 (set E" in page


def test_what_is_said_of_kernels_on_task_0_is_that_of_the_files() -> None:
    page = " ".join(PAGES["docs/methods/er.md"].split())
    of_method, ours = our_task_0()
    today = [score for (score,) in in_set("F 100")]
    apart = [new - of_method["er"][order] for order, new in enumerate(today)]
    assert f"is {gained(apart)} (standard error) higher, with fewer epochs:" in page
    assert f"{gained(apart[:9])} without order 9, which fell by {-apart[9]:.3f}." in page
    again = {order: scores[0] for order, scores in enumerate(in_set("E")) if scores}
    assert [*again] == [1, 2, 3, 8]
    others = [in_set(f"F {seed}") for seed in (101, 102, 103)]
    exact = {order: scores[0] for order, scores in enumerate(in_set("G")) if scores}
    said = "{:.3f} and {:.3f} on orders 2 and 8, where those runs have {:.3f} and {:.3f} on average"
    assert said.format(*exact.values(), *(mean(ours[order]) for order in exact)) in page
    said = "set F's other seeds {:.3f} and {:.3f}."
    assert said.format(*(mean(of[order][0] for of in others) for order in exact)) in page
    above = gained([score - mean(ours[order]) for order, score in again.items()])
    and_f = gained([score - today[order] for order, score in again.items()])
    assert f"end {above} above all our runs of these orders on a GPU, and {and_f} above" in page


def test_what_seeds_of_their_own_are_worth_is_that_of_the_files() -> None:
    page = PAGES["docs/methods/er.md"]
    own = runs("../../bench/results/draws/iirc-cifar/er")
    assert [(run["order"], run["seed"]) for run in own] == [(n, 101 + n) for n in range(10)]
    pairs = [
        [new - old for new, old in zip(one["r"], other["r"], strict=True)]
        for one, other in zip(own, runs("er"), strict=True)
    ]
    tasks = (0, 1, 5, 10, 15, 21)
    means = [shown([run["r"][j] for run in own]) for j in tasks]
    means.append(shown([mean(run["r"]) for run in own]))
    gains = [gained([gain[j] for gain in pairs]) for j in tasks]
    gains.append(gained([mean(gain) for gain in pairs]))
    paper = paper_results("iirc-cifar")["er"]
    (group,), (hundred,) = (
        read_runs(path).groups for path in (BENCH_RESULTS / "draws", RESULTS / "er")
    )
    for label, due in (
        ("seeds 101 to 110, mean (std) of ten orders", means),
        ("gain of seeds 101 to 110, order by order, ± standard error", gains),
        ("seed 100 less the paper, ± 95 % interval", less_the_paper(hundred, paper, tasks)),
        ("seeds 101 to 110 less the paper, ± 95 % interval", less_the_paper(group, paper, tasks)),
    ):
        (said,) = re.findall(rf"^\| {re.escape(label)} \|(.*)\|$", page, re.M)
        assert [one.replace("−", "-") for one in cells(said)] == due
    found = beside_paper(group, paper)
    assert (found.apart, found.verdict) == (0, "within chance")
    over = found.over_all.difference
    assert f"lie {-over.mean:.3f} ± {over.half_width:.3f} below it, and none of their" in page
    below = [task for task in range(22) if after_task(group, paper, task).difference.mean < 0]
    worst = max(-after_task(group, paper, task).difference.mean for task in below)
    assert f"{len(below)} lie below the paper's, by {worst:.3f} at most; of seed 100's, all" in page
    assert all(after_task(hundred, paper, task).difference.mean < 0 for task in range(22))
    start, later = ([gain[0] for gain in pairs], [mean(gain[1:]) for gain in pairs])
    assert f"gain after that correlate at {correlation(start, later):.2f}" in page
    left = [through_the_origin(start, [gain[task] for gain in pairs]) for task in (5, 21)]
    assert "{} is left after task 5 and {} after task 21".format(*left) in page


def test_seeds_of_their_own_have_the_settings_of_the_command_on_the_page() -> None:
    (words,) = re.findall(
        r"^    polarbear run (.*--own-seeds.*)$", PAGES["docs/methods/er.md"], re.M
    )
    (asked,) = plan(words.split())
    for run in runs("../../bench/results/draws/iirc-cifar/er"):
        due = plain(asked.settings_of(run["order"]).to_dict())
        # None is ER's own rule; scores that are kept train nothing else.
        due |= {"decision": "threshold", "keep_scores": True}
        assert run["settings"] == due


def through_the_origin(start: list[float], later: list[float]) -> str:
    """Return the slope of least squares without a constant, and its standard error."""
    square = sum(x * x for x in start)
    slope = sum(x * y for x, y in zip(start, later, strict=True)) / square
    left = sum((y - slope * x) ** 2 for x, y in zip(start, later, strict=True))
    return f"{slope:.2f} ± {(left / (len(start) - 1) / square) ** 0.5:.2f}"


def less_the_paper(group: Group, paper: Published, tasks: tuple[int, ...]) -> list[str]:
    """Return the differences after some tasks and over all with their intervals."""
    found = [after_task(group, paper, task).difference for task in tasks]
    found.append(beside_paper(group, paper).over_all.difference)
    return [f"{one.mean:+z.3f} ± {one.half_width:.3f}" for one in found]


@pytest.mark.parametrize("method", ["icarl-cnn", "icarl-norm", "lucir"])
def test_the_differences_of_a_page_are_those_that_compare_prints(method: str) -> None:
    page = PAGES[f"docs/methods/{method}.md"]
    (tasks,) = re.findall(r"^\| task \|(.*)\|$", page.partition("\n| mean (std)")[0], re.M)[-1:]
    (said,) = re.findall(r"^\| difference ± 95 % interval \|(.*)\|$", page, re.M)
    (group,) = read_runs(RESULTS / method).groups
    paper = paper_results(group.benchmark)[method]
    due = [after_task(group, paper, int(task)).difference for task in cells(tasks)]
    shown = [f"{one.mean:+.3f} ± {one.half_width:.3f}" for one in due]
    assert [one.replace("−", "-") for one in cells(said)] == shown


@pytest.mark.parametrize("method", sorted(paper_results("iirc-cifar")))
def test_a_verdict_is_what_the_files_say(method: str) -> None:
    (said,) = re.findall(r"^## Result\n\n\*\*(.*?)\*\*", PAGES[f"docs/methods/{method}.md"], re.M)
    (group,) = read_runs(RESULTS / method).groups
    found = beside_paper(group, paper_results("iirc-cifar")[method])
    words = {"differs": ("Differs, open", "Differs, explained"), "within chance": ("Reproduced",)}
    due = ("Not decided",) if group.count < 3 else words[found.verdict]
    assert said.startswith(due)
    orders = {1: "one order", 3: "three orders", 5: "five orders"}
    assert group.count == 10 or orders[group.count] in said or found.verdict == "differs"
    over = found.over_all.difference
    if round(over.mean, 3):
        wide = f" ± {over.half_width:.3f}" if found.told else ""
        side = "below" if over.mean < 0 else "above"
        assert f"{abs(over.mean):.3f}{wide} {side} the paper over all tasks" in said
    else:
        assert f"equal to the paper over all tasks ({found.over_all.a:.3f})" in said
    row = next(line for line in README.splitlines() if f"/{method}.md#result)" in line)
    (word,) = re.findall(r"^(?:Reproduced|Not decided|Differs, [^:]+)", said)
    assert f"[{word.lower()}](" in row
    if "no task's interval leaves 0 out" in said:
        assert found.apart == 0
    if found.verdict == "differs" and not over.significant:  # by its tasks alone
        assert found.apart == 5
        assert "outside of the intervals of five tasks" in said


def test_what_is_said_of_icarl_cnn_in_words_is_so() -> None:
    page, found = PAGES["docs/methods/icarl-cnn.md"], runs("icarl-cnn")
    (group,) = read_runs(RESULTS / "icarl-cnn").groups
    paper = paper_results(group.benchmark)["icarl-cnn"]
    beside = [after_task(group, paper, task).difference for task in range(22)]
    low = [f"{-one.mean:.3f}" for one in beside if one.mean + one.half_width < 0]
    assert f"After these ours is {' and '.join(low)} below the paper" in page
    above = [task for task, one in enumerate(beside) if one.mean > 0]
    assert above == list(range(9, 22))
    assert f"by {max(one.mean for one in beside):.3f} at most" in page
    first = sorted((run["r"][0], run["order"]) for run in found)
    assert {order for _, order in first[:2]} == {1, 2}
    assert f"the mean of orders 0 to 2 was {mean(run['r'][0] for run in found[:3]):.3f}" in page


def test_what_is_said_of_lucir_in_words_is_so() -> None:
    page, found = PAGES["docs/methods/lucir.md"], runs("lucir")
    last = [run["r"][21] for run in found]
    assert f"all ten runs end between {min(last):.3f} and {max(last):.3f}" in page
    (_, start) = page.split("standard deviation of such a mixture |\n")
    paper = paper_results("iirc-cifar")["lucir"]
    for task, line in zip((2, 10, 21), start.splitlines()[1:4], strict=True):
        ours, theirs = mean(run["r"][task] for run in found), paper.mean[task]
        part = theirs / ours
        due = [str(task), f"{ours:.3f}", f"{theirs:.2f} ({paper.std[task]:.3f})"]
        due += [f"{part:.2f}", f"{(part * (1 - part)) ** 0.5 * ours:.2f}"]
        assert cells(line) == due
    ends = {name: mean(run["scores"][name][21] for run in found) for name in found[0]["scores"]}
    assert "superclasses is {pw_jaccard/superclass:.2f}, that of".format(**ends) in page
    assert "subclasses {pw_jaccard/subclass:.2f}, and it predicts".format(**ends) in page
    assert "it predicts {label_ratio:.2f} labels for each true one".format(**ends) in page


def test_what_is_said_of_lucirs_sigma_is_that_of_the_file() -> None:
    page = PAGES["docs/methods/lucir.md"]
    with (ROOT / "bench/results/lucir-sigma.csv").open(encoding="utf-8") as file:
        every = list(csv.DictReader(file))
    rows = [row for row in every if row["network"] == "small"]
    table = page[page.index("| their margin: runs whose") :]
    before = page[: page.index("| their margin: runs whose")].splitlines()
    tasks = [int(cell) for cell in cells(before[-3])[1:]]

    def values(margin: str, name: str, task: int) -> list[float]:
        return [float(r[name]) for r in rows if (r["margin"], int(r["task"])) == (margin, task)]

    below = [sum(one < 0 for one in values("authors", "sigma", task)) for task in tasks]
    said = [cells(line)[1:] for line in table.splitlines()[:3]]
    assert said[0] == [str(count) for count in below]
    for margin, line in zip(("authors", "ours"), said[1:], strict=True):
        assert line == [shown(values(margin, "score", task)) for task in tasks]
    ends = values("authors", "score", 21)
    assert (len(ends), sum(score < 0.02 for score in ends)) == (10, 9)
    assert min(float(r["sigma"]) for r in rows if r["margin"] == "ours") > 0
    assert len(values("ours", "score", 21)) == 7
    whole = [row for row in every if row["network"] == "resnet32"]
    for margin, words in (("authors", "their margin"), ("ours", "ours")):
        mine = [row for row in whole if row["margin"] == margin]
        scores = " | ".join(f"{float(row['score']):.3f}" for row in mine)
        sigmas = " | ".join(row["sigma"].replace("-", "−") for row in mine)
        assert f"| {words}: $\\sigma$ that the task ends with | {sigmas} |" in page
        assert f"| {words}: $R_j$ | {scores} |" in page


def test_the_tables_of_kin_are_those_of_the_files() -> None:
    page, found = PAGES["docs/methods/kin.md"], runs("kin")
    lines = {name: re.findall(rf"^\| {name} \|(.*)\|$", page, re.M) for name in ("mean", "std")}
    said = {name: [float(cell) for line in lines[name] for cell in cells(line)] for name in lines}
    by_task = list(zip(*(run["r"] for run in found), strict=True))
    assert said["mean"] == [round(mean(scores), 3) for scores in by_task]
    assert said["std"] == [round(stdev(scores), 3) for scores in by_task]
    orders = {
        name: cells(line)
        for name, line in re.findall(r"^\| (after task 21|over all tasks) \| (0.*)\|$", page, re.M)
    }
    assert orders["after task 21"] == [f"{run['r'][21]:.3f}" for run in found]
    assert orders["over all tasks"] == [f"{mean(run['r']):.3f}" for run in found]


def test_the_table_of_kins_parts_is_that_of_the_files() -> None:
    page = PAGES["docs/methods/kin.md"]
    rows = re.findall(r"^\| `(kin(?:-[\w-]+)?)`.*?\| 0–2 \|(.*)\|$", page, re.M)
    base = ablation("kin-bare")
    for name, said in rows:
        parts = ablation(name) if name != "kin" else runs("kin")[:3]
        assert [run["order"] for run in parts] == [0, 1, 2]
        last, over = [run["r"][21] for run in parts], [mean(run["r"]) for run in parts]
        less = [f"{mean(last) - mean(run['r'][21] for run in base):+.3f}"]
        less += [f"{mean(over) - mean(mean(run['r']) for run in base):+.3f}"]
        if name == "kin-bare":
            less = ["", ""]
        due = [f"{mean(last):.3f}", less[0], f"{mean(over):.3f}", less[1], *found_parents(parts)]
        assert [cell.replace("−", "-") for cell in cells(said)] == due, name
    assert len(rows) == 10


def found_parents(some: list[dict]) -> list[str]:
    """Return parents right, wrong and false after task 21, means over runs."""
    return [f"{77 * mean(run['scores'][one][21] or 0 for run in some):.1f}" for one in FOUND]


def ablation(name: str) -> list[dict]:
    """Return an ablation's first three orders."""
    return runs(f"../ablations/iirc-cifar/{name}")[:3]


def test_the_table_of_unlimited_memory_is_that_of_the_files() -> None:
    page = PAGES["docs/methods/kin.md"]
    rows = re.findall(r"^\| `(kin-(?:bare-)?infinite[\w-]*)`.*?\|(.*)\|$", page, re.M)
    for name, said in rows:
        (run,) = ablation(name)
        due = [run["r"][21], mean(run["r"]), run["r_by_rule"]["expected-tree"][21]]
        found = [77 * run["scores"][one][21] for one in FOUND]
        assert cells(said)[1:] == [f"{x:.3f}" for x in due] + [f"{x:.0f}" for x in found], name
    assert len(rows) == 3


def test_what_the_best_class_and_its_parent_would_add_is_in_the_files() -> None:
    parts = [ablation(folder.name) for folder in (RESULTS / "../ablations/iirc-cifar").iterdir()]
    few = [some for some in parts if some[0]["settings"]["memory_per_class"] is not None]
    added = [
        mean(run["r_by_rule"]["top1-parent"][21] - run["r"][21] for run in some)
        for some in few
        if some[0].get("r_by_rule", {}).get("top1-parent", [None])[-1] is not None
    ]
    page, (infinite,) = PAGES["docs/methods/kin.md"], ablation("kin-infinite")
    assert len(added) == 8
    assert f"is up to {max(added):.3f} better than Kin's own rule" in page
    other = infinite["r_by_rule"]["top1-parent"][21]
    assert f"would give `kin-infinite` {other:.3f}." in page


def test_every_ablation_has_a_command_that_repeats_it() -> None:
    found = set()
    for command in re.findall(
        r"bench/run\.py (.* --variants bench/kin\.json.*)", PAGES["docs/methods/kin.md"]
    ):
        (benchmark,) = re.findall(r"--benchmark (\S+)", command) or ["iirc-cifar"]
        for name, first, last in re.findall(r"(\S+):(\d)(?:-(\d))?", command):
            orders = range(int(first), int(last or first) + 1)
            found |= {f"{benchmark}/{name}/order-{order}.json" for order in orders}
    folder = ROOT / "results" / "ablations"
    assert {file.relative_to(folder).as_posix() for file in folder.glob("*/*/*.json")} == found
    names = {Path(one).parts[1] for one in found}
    assert names == json.loads((ROOT / "bench/kin.json").read_text(encoding="utf-8")).keys()


def test_what_the_relative_threshold_adds_is_paired_by_order() -> None:
    pairs = list(zip(runs("kin"), runs("../ablations/iirc-cifar/kin-bare"), strict=True))
    last = [new["r"][21] - old["r"][21] for new, old in pairs]
    over = [mean(new["r"]) - mean(old["r"]) for new, old in pairs]
    page = PAGES["docs/methods/kin.md"]
    assert min(last) > 0
    assert f"it adds {mean(last):.3f} after task 21** (paired; the standard deviation" in page
    assert f"of the differences is {stdev(last):.3f}, and all ten are above 0)" in page
    assert f"and {mean(over):.3f} over all tasks ({stdev(over):.3f})." in page


def test_what_kin_loses_without_repeated_images_is_in_the_files() -> None:
    first, second = runs("kin")[:3], runs("../iirc-cifar-v2/kin")
    bare = runs("../ablations/iirc-cifar-v2/kin-bare")
    ends = [f"{mean(run['r'][21] for run in some):.3f}" for some in (second, first, bare)]
    tree = mean(run["r_by_rule"]["expected-tree"][21] for run in second)
    right, wrong, false = found_parents(second)
    (old, *_), (fewer, *_) = found_parents(first), found_parents(bare)
    page, leaks = PAGES["docs/methods/kin.md"], PAGES["docs/explanation/leaks.md"]
    assert f"Kin ends at {ends[0]}, not {ends[1]}**" in page
    assert f"{right} of 77 parents instead of {old}, with {wrong} wrong and {false} false" in page
    assert f"the same scores give {tree:.3f}." in page
    assert f"they find {fewer}, and end at {ends[2]} " in page
    assert f"{old} of 77 parents in the first version (orders 0 to 2) and {right}" in leaks
    assert f"ends at {ends[1]} and {ends[0]}." in leaks


def asked(benchmark: str, column: str, threshold: float) -> list[str]:
    """Return parents right, wrong and false by a threshold, means over the orders of the file."""
    with (ROOT / "bench/results/kin-parents.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["benchmark"] == benchmark]
    named = [row for row in rows if float(row[column]) >= threshold]
    right = sum(row["parent"] == row["most probable"] for row in named)
    false = sum(not row["parent"] for row in named)
    orders = len({row["order"] for row in rows})
    return [f"{n / orders:.1f}" for n in (right, len(named) - right - false, false)]


def test_what_networks_of_birth_say_is_in_a_file() -> None:
    page = PAGES["docs/methods/kin.md"]
    right, _, false = asked("iirc-cifar", "part of its own", 0.8)
    assert f"asked with 0.8, name {right} of them and {false} false ones" in page
    said = "of 0.35 the same networks name {} of them, and {} wrong and {} false ones"
    assert said.format(*asked("iirc-cifar-v2", "probability", 0.35)) in page


def test_the_thresholds_of_kin_are_those_of_the_file() -> None:
    page = PAGES["docs/methods/kin.md"]
    with (ROOT / "bench/results/kin-thresholds.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["memory"] == "20 per class"]
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        both = [float(row["mean"]) for row in (one, other)]
        said = re.findall(rf"^\| {one['threshold']}, {one['value']}.*?\|(.*)\|$", page, re.M)[0]
        assert cells(said) == [f"{score:.3f}" for score in (*both, mean(both))]
    first = [float(row["after task 0"]) for row in rows if row["order"] == "8"]
    assert f"between {min(first):.3f} and {max(first):.3f} on order 8" in page
    whole = [early(folder) for folder in ("../ablations/iirc-cifar/kin-bare", "kin")]
    assert "{:.3f} with bare thresholds and {:.3f} with relative ones".format(*whole) in page
    assert f"| Kin | | | {whole[1]:.3f} |" in page


def early(folder: str) -> float:
    """Return the mean over post-task validation after tasks 0 to 3 of orders 8 and 9."""
    return mean(score for run in runs(folder)[8:] for score in run["r_valid"][:4])


def test_decide_is_asked_about_one_benchmark_at_a_time() -> None:
    said = [
        folder for page in PAGES.values() for folder in re.findall(r"decide (results\S*)`", page)
    ]
    for folder in said:
        files = [json.loads(file.read_text("utf-8")) for file in (ROOT / folder).rglob("*.json")]
        assert len({run["benchmark"] for run in files}) == 1, folder
    assert said


def test_the_table_of_kins_decisions_is_that_of_the_files() -> None:
    names = ("no parents", "no balance", "no distillation", "no holes", "linear head")
    for name in (*names, "true parents (oracle)", "Kin as it is, relative threshold"):
        (said,) = re.findall(
            rf"^\| {re.escape(name)} \|(.*)\|$", PAGES["docs/methods/kin.md"], re.M
        )
        folder = "kin-" + name.removesuffix(" head").removesuffix(" (oracle)").replace(" ", "-")
        parts = runs("kin")[:3] if name.startswith("Kin") else ablation(folder)
        due = [mean(run["r"][21] for run in parts)]
        for rule in ("top1", "top1-parent", "expected-tree"):
            due.append(mean(run["r_by_rule"][rule][21] for run in parts))
        assert cells(said) == [f"{score:.3f}" for score in due], name


def test_what_methods_know_and_say_is_that_of_the_files() -> None:
    said = " ".join(PAGES["docs/explanation/scores.md"].split())
    ends = {
        name: (run["r"][21], run["r_by_rule"]["expected-tree"][21])
        for name in ("wa", "bic", "derpp", "er-ace")
        for run in runs(name)[:1]
    }
    assert "at {:.3f} and {:.3f};".format(*(ends[name][0] for name in ("wa", "bic"))) in said
    for pair in (("wa", "bic"), ("derpp", "er-ace")):
        assert "{:.3f} and {:.3f}.".format(*(ends[name][1] for name in pair)) in said


def test_what_the_papers_methods_know_is_that_of_the_files() -> None:
    said = " ".join(PAGES["docs/explanation/scores.md"].split())
    ends = [
        (mean(run["r"][21] for run in found), mean(likeliest(run)[21] for run in found))
        for found in map(runs, ("er", "icarl-norm", "er-infinite"))
    ]
    words = (
        "ER ends at {:.3f} by the threshold and at {:.3f} by its likeliest class",
        "iCaRL-norm at {:.3f} and {:.3f}",
        "ER-infinite at {:.3f} and {:.3f}.",
    )
    assert ", ".join(one.format(*end) for one, end in zip(words, ends, strict=True)) in said
    later = [run["r_by_rule"] for run in runs("icarl-cnn") if "r_by_rule" in run]
    assert len(later) == 7
    by_rule = (
        mean(of[rule][21] for of in later) for rule in ("threshold", "top1", "expected-tree")
    )
    later_words = (
        "end at {:.3f}, by the likeliest class at {:.3f}, with the true hierarchy at {:.3f}."
    )
    assert later_words.format(*by_rule) in said


def test_what_the_page_on_failing_says_of_labels_is_in_the_files() -> None:
    page = PAGES["docs/explanation/why-methods-fail.md"]
    found = [run for name in ("ewc", "mas", "gem") for run in runs(name)]
    words = "predict {:.1f}, {:.1f} and {:.1f} for each true one"
    assert words.format(*(run["scores"]["label_ratio"][21] for run in found)) in page
    words = "by their likeliest class alone at {:.3f}, {:.3f} and {:.3f}"
    assert words.format(*(likeliest(run)[21] for run in found)) in page
    assert all(0.63 < run["scores"]["recall"][21] < 0.70 for run in found)
    norm = runs("icarl-norm")
    jaccard, last = (
        mean(run["scores"]["jaccard"][21] for run in norm),
        mean(r["r"][21] for r in norm),
    )
    assert f"a Jaccard score of {jaccard:.3f} and a pw-JS of only {last:.3f} (five" in page


def test_what_is_said_of_kin_in_words_is_so() -> None:
    found = runs("kin")
    last, over = [run["r"][21] for run in found], [mean(run["r"]) for run in found]
    parents = found_parents(found)
    page, readme = PAGES["docs/methods/kin.md"], README
    assert f"{mean(last):.3f} ± {stdev(last):.3f}" in page
    assert (
        f"**{mean(last):.3f} ± {stdev(last):.3f}** | {mean(over):.3f} ± {stdev(over):.3f}" in readme
    )
    assert "{} get the right one on average, {} a wrong one; {} classes".format(*parents) in page
    assert f"{parents[0]} of 77" in readme
    falls = f"falls from {mean(last):.3f} to {mean(last[1:]):.3f}"
    assert f"{falls}, over all tasks from {mean(over):.3f} to {mean(over[1:]):.3f}" in page


@pytest.mark.parametrize("method", ["ewc", "gdumb", "gem", "mas", "mask-seen", "si"])
def test_what_is_said_of_too_many_labels_or_too_few_is_in_the_files(method: str) -> None:
    (run,), (er, *_), (finetune, *_) = map(runs, (method, "er", "finetune"))
    last = {name: scores[21] for name, scores in run["scores"].items()}
    page = PAGES[f"docs/methods/{method}.md"]
    said = "recall is {recall:.3f}, precision {precision:.3f}: {label_ratio:.1f} labels are"
    assert said.format(**last) in page
    assert f"By its likeliest class alone the same run gives {likeliest(run)[21]:.3f}" in page
    for link, other in (("[finetune](finetune.md)", finetune), ("[ER](er.md)", er)):
        for score in re.findall(rf"{re.escape(link)}.*? gives (0\.\d+) on this order", page):
            assert score == f"{likeliest(other)[21]:.3f}"


# The page of results


def test_what_is_said_of_runs_begun_again_is_that_of_the_file() -> None:
    with (BENCH_RESULTS / "repeated.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    apart = {
        (row["method"], int(row["task"])): float(row["again"]) - float(row["first"]) for row in rows
    }
    for row in rows:
        (run,) = (run for run in runs(row["method"]) if run["order"] == int(row["order"]))
        assert f"{run['r'][int(row['task'])]:.6f}" == row["first"]
    by_run = {name: [x for (of, _), x in apart.items() if of == name] for name, _ in apart}
    assert {name: len(some) - 1 for name, some in by_run.items()} == {"agem": 14, "icarl-norm": 16}
    page, (highest, second, *_) = PAGES["docs/results.md"], sorted(map(abs, apart.values()))[::-1]
    assert {name: f"{mean(some):+.3f}" for name, some in by_run.items()} == {
        "agem": "+0.002",
        "icarl-norm": "-0.002",
    }
    assert f"their files by {mean(map(abs, apart.values())):.3f} per task on average" in page
    assert "Their means over tasks are 0.002 above and 0.002 below;" in page
    assert all(x < 0 for (name, task), x in apart.items() if name == "icarl-norm" and task > 8)
    assert abs(apart["icarl-norm", 1]) == second
    assert abs(apart["agem", 0]) == highest
    assert (
        f"by {highest:.3f} at most (A-GEM, task 0; then iCaRL-norm, task 1, by {second:.3f})"
        in page
    )


def test_the_readmes_table_beside_the_paper_is_that_of_the_files() -> None:
    folders = {"each with a seed of its own": BENCH_RESULTS / "draws"}
    rows = re.findall(r"^\| ([^|]+, \d+.*?) \|(.*)\| .*\(docs/methods/([\w-]+)\.md", README, re.M)
    assert len(rows) == 9
    for name, said, method in rows:
        own = next((at for words, at in folders.items() if words in name), RESULTS / method)
        (group,) = read_runs(own).groups
        assert f", {group.count}" in name
        paper = paper_results("iirc-cifar").get(method)
        due = []
        for task in (0, 10, 21):
            due.append(f"{mean(run.scores['pw_jaccard'][task] for run in group.runs):.2f}")
            due.append("" if paper is None else f"{paper.mean[task]:.2f} ({paper.std[task]:.3f})")
        assert [cell.strip() for cell in said.split("|")] == due, name


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """Return the script that writes the page of results."""
    return bench_script("results_page")


def test_the_page_of_results_is_what_the_script_writes(maker: ModuleType) -> None:
    page = maker.PAGE.read_text(encoding="utf-8")
    assert maker.written(page) == page, "run python bench/results_page.py"


def test_a_row_has_our_mean_the_papers_and_their_difference(maker: ModuleType) -> None:
    row, own, _ = (line for line in maker.tables().splitlines() if line.startswith("| [ER](meth"))
    with_own = runs("../../bench/results/draws/iirc-cifar/er")
    assert cells(own)[:2] == ["[ER](methods/er.md), seeds 101–110", "0–9"]
    assert cells(own)[2].startswith(f"{mean(run['r'][21] for run in with_own):.3f} ± ")
    _, orders, ours, paper, difference, over, papers_over, less, apart = cells(row)
    found = runs("er")
    last = mean(run["r"][21] for run in found)
    assert (orders, paper) == ("0–9", "0.13")
    assert ours.startswith(f"{last:.3f} ± ")
    assert difference.startswith(f"{last - 0.13:+.3f} ± ")
    over_all = mean(mean(run["r"]) for run in found)
    assert over.startswith(f"{over_all:.3f} ± ")
    printed_in_the_paper = mean(paper_results("iirc-cifar")["er"].mean)
    assert papers_over == f"{printed_in_the_paper:.3f}"
    assert less.startswith(f"{over_all - printed_in_the_paper:+.3f} ± ")
    assert apart == "10 of 22"


@pytest.mark.parametrize(("method", "count"), [("finetune", 7), ("icarl-norm", 2), ("ncm", 1)])
def test_minutes_of_fewer_files_than_a_row_has_say_so(
    maker: ModuleType, method: str, count: int
) -> None:
    title = f"| [{METHODS[method].title}](methods/"
    *_, row = (line for line in maker.section(RESULTS).splitlines() if line.startswith(title))
    cost, found = cells(row)[-4:], runs(method)
    seconds = [one["cost"]["device_seconds"] for one in found if "cost" in one]
    fewer = f" (n = {count})" if count < len(found) else ""
    assert cost[1:3] == [f"{mean(seconds) / 60:.1f}{fewer}", str(len(found))]
    assert cost[0] == f"{mean(one['seconds'] for one in found) / 60:.1f}"


def test_a_score_of_fewer_files_than_a_row_has_says_so(maker: ModuleType, tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "er", tmp_path / "iirc-cifar" / "er")
    for order in range(4):
        file = tmp_path / "iirc-cifar" / "er" / f"order-{order}.json"
        content = json.loads(file.read_text(encoding="utf-8"))
        r = [*content["r"][:-1], None]
        file.write_text(json.dumps(content | {"r": r, "scores": {}}), encoding="utf-8")
    row, _ = (line for line in maker.tables(tmp_path).splitlines() if line.startswith("| [ER]"))
    _, orders, ours, _, difference, over, _, less, _ = cells(row)
    last = mean(run["r"][21] for run in runs("er")[4:])
    assert orders == "0–9"
    assert ours.startswith(f"{last:.3f} ± ")
    assert all(cell.endswith(" (n = 6)") for cell in (ours, difference, over, less))


def test_what_has_not_been_run_is_said_with_the_command_that_runs_it(
    maker: ModuleType, tmp_path: Path
) -> None:
    shutil.copytree(RESULTS / "er", tmp_path / "iirc-cifar" / "er")
    for order in (0, 4, 5, 6):
        (tmp_path / "iirc-cifar" / "er" / f"order-{order}.json").unlink()
    said = maker.tables(tmp_path)
    assert "64 of the paper's 70 runs, by class order: ER 0, 4–6, ER-infinite 0–9, A-GEM" in said
    (words,) = re.findall(r"^    python bench/run.py ((?:[\w-]+:[\d,-]+ )+)", said, re.M)
    chosen = bench_script("run").chosen
    asked = [(one.method, one.order) for word in words.split() for one in chosen(word, "")]
    assert asked[:5] == [("er", 0), ("er", 4), ("er", 5), ("er", 6), ("er-infinite", 0)]
    assert len(set(asked)) == 64


def test_a_row_of_ones_own_needs_its_files_alone(maker: ModuleType, tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "er", tmp_path / "iirc-cifar" / "mine")
    for file in (tmp_path / "iirc-cifar" / "mine").glob("*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(json.dumps(content | {"method": "mine"}), encoding="utf-8")
    (tmp_path / "ablations" / "iirc-cifar").mkdir(parents=True)
    rows = [line for line in maker.tables(tmp_path).splitlines() if line.startswith("| mine |")]
    assert [cells(row)[1:4] for row in rows] == [["0–9", "0.113 ± 0.008", "0.166 ± 0.011"]]
    assert "ablations" not in maker.tables(tmp_path)


def test_a_benchmark_that_the_paper_has_not_is_shown_without_it(
    maker: ModuleType, tmp_path: Path
) -> None:
    shutil.copytree(RESULTS / "er", tmp_path / "cil-cifar" / "er")
    for file in (tmp_path / "cil-cifar" / "er").glob("*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        mine = {"benchmark": "cil-cifar", "cost": {"device_seconds": 90.0}}
        file.write_text(json.dumps(content | mine), encoding="utf-8")
    title, _, heads, _, row = maker.tables(tmp_path).splitlines()
    assert title == "## cil-cifar-v1"
    assert cells(heads)[2:4] == ["ours, R_21", "ours, all tasks"]
    scores = ["0–9", "0.113 ± 0.008", "0.166 ± 0.011"]
    assert cells(row)[1:] == [*scores, "10.4", "1.5", "10", "NVIDIA H200"]
