"""The page on networks: its files, a network with weights of its own, and prompts."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from doc_pages import ROOT, blocks
from engine_run import interrupt_at, outcome, shapes_stream, tiny
from polarbear.base.errors import PolarbearError
from polarbear.engine.nets.networks import build_backbone
from polarbear.launch.assembly import build_learner
from polarbear.launch.runner import resume, run

PAGE = "docs/how-to/your-own-and-pretrained-networks.md"
FILES = ("own_networks", "prompts")
SMALL = {"width": 32, "depth": 1, "side": 32, "patch": 16}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FILES:
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8"), vars(module))


def prompted(**changes: Any) -> Any:
    how = {"network": "own_networks:tiny_vit", "network_options": SMALL, "tasks": 2}
    how |= {"optimiser": "adamw", "learning_rate": 0.01, "batch_size": 64, "epochs": 1}
    return tiny("prompts:Prompts", **how | changes)


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_the_file_and_it_is_short(name: str) -> None:
    code = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert code in [block.text for block in blocks(PAGE)]
    assert len(code.splitlines()) <= 65


def test_a_frozen_network_may_bring_its_weights(tmp_path: Path) -> None:
    network = build_backbone("own_networks:tiny_vit", 1, SMALL)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    options = SMALL | {"weights": str(tmp_path / "weights.pt")}
    found = build_backbone("own_networks:frozen_vit", 2, options)
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(found.eval()(images), network.eval()(images))
    assert found.frozen is True


@pytest.mark.parametrize("name", ["own_networks:tiny_vit", "own_networks:frozen_vit"])
@pytest.mark.parametrize(("option", "bad"), [("depth", "one"), ("width", "64,32")])
def test_a_text_where_a_number_is_due_is_refused(name: str, option: str, bad: str) -> None:
    said = f"the option {option} of {name} must be a whole number, not '{bad}': values on the comm"
    with pytest.raises(PolarbearError, match=said):
        build_backbone(name, 0, {option: bad})


def test_prompts_learn_and_the_network_stays(tmp_path: Path) -> None:
    before = build_learner(prompted(), shapes_stream())
    kept: dict[str, Any] = {}

    def note(trainer: Any, _: Any) -> None:
        kept["learner"] = trainer.learner

    assert run(prompted(), tmp_path, stream=shapes_stream(), on_step=note)
    after = kept["learner"]
    for name, tensor in after.model.backbone.state_dict().items():
        assert torch.equal(tensor, before.model.backbone.state_dict()[name]), name
    for name, tensor in after.method.named_parameters():
        assert not torch.equal(tensor, dict(before.method.named_parameters())[name]), name


def test_the_prompts_of_the_nearest_keys_stand_behind_the_first_token() -> None:
    learner = build_learner(prompted(), shapes_stream())
    method, network, images = learner.method, learner.model.backbone, torch.randn(3, 3, 32, 32)
    learner.model.head.grow(5)
    learner.model.eval()
    with torch.no_grad():
        near, logits = method.prompted(images)
        for i, image in enumerate(images):
            asked = network(image[None])[0]
            cosines = [float(torch.cosine_similarity(asked, key, dim=0)) for key in method.keys]
            best = sorted(range(10), key=lambda key: -cosines[key])[:3]
            assert near[i].tolist() == pytest.approx([cosines[key] for key in best], abs=1e-6)
            tokens = list(network.tokens(image[None])[0])
            more = [token for key in best for token in method.prompts[key]]
            rows = torch.stack([tokens[0], *more, *tokens[1:]])
            expected = learner.model.head(network.pooled(rows[None]))
            torch.testing.assert_close(logits[i : i + 1], expected)


def test_a_run_with_prompts_resumes(tmp_path: Path) -> None:
    more: dict[str, Any] = {"stream": shapes_stream(), "save_every": 0}
    assert run(prompted(), tmp_path / "whole", **more)
    for stop in (3, 10):
        with pytest.raises(KeyboardInterrupt):
            run(prompted(), tmp_path / str(stop), on_step=interrupt_at(stop), **more)
        assert resume(tmp_path / str(stop), **more)
        assert outcome(tmp_path / str(stop)) == outcome(tmp_path / "whole")
