"""Methods by name, entry point and dotted path; their options; the errors."""

import re
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint
from inspect import getmodule, getsource
from statistics import median
from typing import Literal

import pytest

from polarbear.base.errors import PolarbearError, UnknownNameError, install_line
from polarbear.engine.contract.elsewhere import ELSEWHERE
from polarbear.engine.contract.method import Method
from polarbear.methods import catalogue
from polarbear.methods.agem import AGEM
from polarbear.methods.catalogue import METHODS, is_bound, method_names, summary, title
from polarbear.methods.er import ER
from polarbear.methods.lucir import LUCIR
from polarbear.methods.registry import find_class, make_options, resolve


def test_the_methods_are_there():
    assert list(METHODS) == [
        "finetune",
        "er",
        "er-infinite",
        "mask-seen",
        "agem",
        "gem",
        "ewc",
        "si",
        "mas",
        "rwalk",
        "gdumb",
        "icarl-cnn",
        "icarl-norm",
        "lucir",
        "replay",
        "icarl-nme",
        "eeil",
        "il2m",
        "wa",
        "bic",
        "lwf",
        "lwm",
        "er-ace",
        "derpp",
        "ss-il",
        "podnet",
        "hcv",
        "mtkd",
        "kin",
        "ncm",
        "slda",
        "ranpac",
        "joint",
        "incremental-joint",
    ]


def test_files_of_methods_are_short():
    """What several methods need, or what is a subject of its own, has a file of its own."""
    lengths = [len(getsource(getmodule(resolve(name))).splitlines()) for name in METHODS]
    assert max(lengths) <= 150
    assert median(lengths) <= 60


@pytest.mark.parametrize("name", METHODS)
def test_the_catalogue_says_what_the_class_says(name):
    method = resolve(name)
    assert METHODS[name].path == f"{method.__module__}:{method.__name__}"
    assert METHODS[name].summary == method.summary == summary(name) != ""
    assert METHODS[name].bound == is_bound(name) == (method.complete or method.keep_everything)
    assert METHODS[name].options == asdict(method.Options())
    plain = (
        METHODS[name].title.lower().replace(" ", "-").replace("a-gem", "agem").replace("++", "pp")
    )
    assert (plain, title(name)) == (name, METHODS[name].title)


def test_a_method_that_is_not_ours_is_called_by_its_class_and_is_no_bound():
    assert [title(name) for name in ("package.module:Mine", "my-loop")] == ["Mine", "my-loop"]
    assert not is_bound("package.module:Mine")


def test_an_unknown_name_brings_the_nearest():
    with pytest.raises(UnknownNameError, match=r"'lucifer': did you mean 'lucir'.*module:Class"):
        resolve("lucifer")
    with pytest.raises(UnknownNameError, match="did you mean 'er'"):
        summary("err")


def test_a_file_in_the_current_directory_is_found(tmp_path, monkeypatch):
    code = "from polarbear.methods.er import ER as Base\nclass Mine(Base):\n    summary = 'mine'\n"
    (tmp_path / "method_in_this_folder.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    try:
        assert resolve("method_in_this_folder:Mine").summary == "mine"
    finally:
        sys.modules.pop("method_in_this_folder", None)
    assert sys.path == path


@pytest.fixture
def installed(monkeypatch):
    """Two packages that add methods; one has the name of a built-in."""
    found = [
        EntryPoint("mine", "polarbear.methods.er:ER", catalogue.ENTRY_POINTS),
        EntryPoint("finetune", "polarbear.methods.er:ER", catalogue.ENTRY_POINTS),
    ]
    monkeypatch.setattr(catalogue, "entry_points", lambda group: found)


@pytest.mark.usefixtures("installed")
def test_entry_points_are_listed_and_found():
    assert method_names() == (*METHODS, "mine")
    assert resolve("mine") is ER
    assert summary("mine") == "from polarbear.methods.er:ER"


@pytest.mark.usefixtures("installed")
def test_no_entry_point_replaces_a_built_in():
    assert resolve("finetune").__name__ == "Finetune"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:Mine", "no module 'no_such_module', neither installed nor in /"),
        ("polarbear.methods.err:ER", "no module 'polarbear.methods.err'"),
        ("polarbear.methods.er:Er", "unknown class in .*er.py 'Er': did you mean 'ER'"),
        (
            "polarbear.engine.contract.method:bce",
            "bce is no method: it must be a class derived from",
        ),
        ("polarbear.settings.settings:Settings", "Settings is no method"),
        (":ER", "':ER' is no dotted path: write package.module:Class"),
        ("polarbear.methods.er:", "is no dotted path"),
        ("./er.py:ER", "is no dotted path"),
        ("absent.py:Mine", "no module 'absent', .*; leave out .py: absent:Mine"),
    ],
)
def test_bad_paths(path, message):
    with pytest.raises(PolarbearError, match=message):
        resolve(path)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import absent_dependency",
            "needs the module 'absent_dependency', which is not installed",
        ),
        ("def (", "cannot be imported: invalid syntax"),
        (
            "from polarbear.base.errors import Absent",
            "cannot be imported: cannot import name 'Absent'",
        ),
    ],
)
def test_a_file_that_does_not_import(tmp_path, monkeypatch, code, message):
    (tmp_path / "does_not_import.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolarbearError, match=f"^does_not_import:Mine {message}"):
        resolve("does_not_import:Mine")


def from_file(folder, code: str) -> str:
    """Write a method and give its path."""
    head = "from dataclasses import dataclass\nfrom polarbear.methods.er import ER\n"
    base = "from polarbear.engine.contract.method import Method\n"
    (folder / "faulty_class.py").write_text(head + base + code)
    return "faulty_class:Mine"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to import from."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("faulty_class", None)


OPTIONS = "class Mine(ER):\n    {}\n    class Options(ER.Options):\n        weight: float{}\n"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("class Mine(ER):\n    replay = 'mixd'", "unknown replay 'mixd': did you mean 'mixed'?"),
        ("class Mine(ER):\n    keep = 'lastt'", "unknown keep 'lastt': did you mean 'last'?"),
        ("class Mine(ER):\n    selection = 'herd'", "unknown selection 'herd': did you mean 'her"),
        ("class Mine(ER):\n    wants_teacher = 'no'", "wants_teacher must be bool, not 'no'"),
        ("class Mine(Method):\n    pass", "it has no loss: define loss(self, batch)"),
        (
            "class Mine(ER):\n    def predict(self, images): ...",
            "the engine never calls predict: define scores(self, images), and decide(self, scores)",
        ),
        (
            "class Mine(ER):\n    def forward(self, images): ...",
            "the engine never calls forward: define scores(self, images)",
        ),
        (
            "class Base:\n    def observe(self, x, y): ...\nclass Mine(ER, Base): ...",
            "the engine never calls observe: define loss(self, batch)",
        ),
        (
            "class Mine(ER):\n    def configure_optimizers(self): ...",
            "the engine never calls configure_optimizers: the optimiser is the engine's",
        ),
        (
            "class Mine(ER):\n    def after_task(self): ...",
            "the engine never calls after_task: define end_task(self)",
        ),
        (OPTIONS.format("", " = 1.0"), "Options is no data class: put @dataclass(frozen=True)"),
        (OPTIONS.format("@dataclass(frozen=True)", ""), "Options has no default for 'weight'"),
    ],
)
def test_a_class_that_would_train_something_else_is_refused(here, code, message):
    with pytest.raises(PolarbearError) as caught:
        resolve(from_file(here, code))
    assert str(caught.value).startswith(f"faulty_class:Mine cannot be run: {message}")
    assert "\n" not in str(caught.value)
    assert find_class("faulty_class:Mine").__name__ == "Mine"


def test_nothing_that_the_engine_calls_is_refused_as_anothers():
    ours = {name for name in vars(Method) if not name.startswith("_")}
    assert not ours & ELSEWHERE.keys()
    known = {name for name in ELSEWHERE if hasattr(Method, name)}
    assert known == {"forward"}  # what PyTorch calls where a method itself is called


@pytest.mark.parametrize(
    "code",
    [
        "class Mine(ER):\n    @property\n    def keep(self):\n        return 'last'",
        "class Mine(ER):\n    class Options(ER.Options):\n        pass",
    ],
)
def test_what_an_object_decides_and_options_taken_over_are_no_faults(here, code):
    assert resolve(from_file(here, code)).__name__ == "Mine"


def test_all_faults_of_a_class_come_at_once_and_warnings_do_not_matter(here):
    code = "class Mine(Method):\n    keep = 'lastt'\n    wants_techer = True"
    with pytest.raises(PolarbearError, match=r"it has no loss: .*; unknown keep 'lastt'") as caught:
        resolve(from_file(here, code))
    assert "techer" not in str(caught.value)


def test_a_path_with_py_names_the_one_without(here):
    from_file(here, "class Mine(ER):\n    pass")
    with pytest.raises(PolarbearError, match=r"; leave out \.py: faulty_class:Mine$"):
        resolve("faulty_class.py:Mine")


def test_without_torch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "polarbear.methods.er")
    with pytest.raises(
        PolarbearError, match=re.escape(f"er:ER needs PyTorch: {install_line('torch')}")
    ):
        resolve("er")


def test_options_are_built_from_plain_values():
    assert make_options(LUCIR, {"margin": 1, "top_k": 3}) == LUCIR.Options(margin=1, top_k=3)
    assert make_options(ER, {}) == ER.Options()


class Fancy(Method):
    """Has options of many types."""

    @dataclass(frozen=True)
    class Options(Method.Options):
        limit: int | None = None
        way: Literal["up", "down"] = "up"
        loud: bool = False
        names: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "values",
    [{"limit": 3}, {"limit": None}, {"way": "down"}, {"loud": True}, {"names": ("a",)}],
)
def test_values_that_fit(values):
    assert make_options(Fancy, values) == Fancy.Options(**values)


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        (LUCIR, {"lamda_base": 1.0}, "unknown option of LUCIR 'lamda_base': .*'lambda_base'"),
        (ER, {"margin": 1.0}, "ER has no options, so not 'margin' either"),
        (LUCIR, {"top_k": 2.0}, "top_k of LUCIR must be int, not 2.0"),
        (LUCIR, {"top_k": True}, "top_k of LUCIR must be int, not True"),
        (LUCIR, {"margin": "0.5"}, "margin of LUCIR must be float, not '0.5'"),
        (AGEM, {"reference_batch_size": 0}, "reference_batch_size must be at least 1, not 0"),
        (Fancy, {"limit": 1.5}, r"limit of Fancy must be int \| None, not 1.5"),
        (Fancy, {"way": "left"}, "way of Fancy must be .*'up', 'down'.*, not 'left'"),
        (Fancy, {"loud": 1}, "loud of Fancy must be bool, not 1"),
    ],
)
def test_values_that_do_not_fit(method, values, message):
    with pytest.raises(PolarbearError, match=message):
        make_options(method, values)
