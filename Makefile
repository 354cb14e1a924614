# Two commands set everything up on a fresh machine; each keeps its own environment.
#   make demo   train four methods on the embedded benchmark and report on them (CPU, minutes)
#   make test   style, types and every test
#   make test-adapters   the adapters for other libraries, with these libraries (5 GB)
#   make docs   the documentation, into build/docs
#   make figures   the pictures in docs/, from runs/demo and from results/
PYTHON ?= python3
SHELL := bash
VENVS := .venvs

.PHONY: demo test test-adapters docs figures check fix clean

demo: $(VENVS)/demo/ready
	$(VENVS)/demo/bin/python examples/demo.py

test: check
	$(VENVS)/test/bin/python -m pytest -n auto --dist worksteal

docs: $(VENVS)/docs/ready
	$(VENVS)/docs/bin/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs
	@echo "The documentation is in build/docs/index.html"

DRAW := $(VENVS)/demo/bin/polarbear report --formats svg,png
figures: demo
	$(DRAW) runs/demo --out build/figures/demo
	cp build/figures/demo/figures/{average-pw-js,questions,river}.svg docs/figures/
	cp build/figures/demo/figures/{confusion,side-by-side}.png docs/figures/
	$(DRAW) results/iirc-cifar --paper --out build/figures/iirc-cifar
	cp build/figures/iirc-cifar/figures/average-pw-js.svg docs/figures/iirc-cifar-average-pw-js.svg
	cp build/figures/iirc-cifar/tables/results-beside-paper.md docs/figures/iirc-cifar-results.md

# Every adapter with its real library, 5 GB in two environments: Avalanche and Continuum need
# torchvision, whose compiled part does not load beside a CPU build of torch.
test-adapters: $(VENVS)/adapters/ready $(VENVS)/avalanche/ready
	$(VENVS)/adapters/bin/python -m pytest tests/adapters -k "not (avalanche or continuum)"
	$(VENVS)/avalanche/bin/python -m pytest tests/adapters -k "avalanche or continuum"

check: $(VENVS)/test/ready
	$(VENVS)/test/bin/ruff check .
	$(VENVS)/test/bin/ruff format --check .
	$(VENVS)/test/bin/mypy

fix: $(VENVS)/test/ready
	$(VENVS)/test/bin/ruff check --fix .
	$(VENVS)/test/bin/ruff format .

clean:
	rm -rf $(VENVS) dist build

# An environment is ready once its install ended well; an interrupted install starts again.
$(VENVS)/demo/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/demo
	$(VENVS)/demo/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,report,torch]'
	touch $@

$(VENVS)/test/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/test
	$(VENVS)/test/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(VENVS)/docs/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/docs
	$(VENVS)/docs/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

$(VENVS)/adapters/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/adapters
	$(VENVS)/adapters/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,datasets,jax,torchmetrics]' tensorflow-cpu pytest iirc==1.0.1
	touch $@

$(VENVS)/avalanche/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/avalanche
	$(VENVS)/avalanche/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[avalanche,cli,continuum]' pytest
	touch $@
