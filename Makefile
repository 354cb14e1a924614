# Two commands set everything up on a fresh machine; each keeps its own environment.
#   make demo   train four methods on the embedded benchmark and compare them (CPU, minutes)
#   make test   style, types and every test
#   make docs   the documentation, into build/docs
PYTHON ?= python3
VENVS := .venvs

.PHONY: demo test docs check fix clean

demo: $(VENVS)/demo/ready
	$(VENVS)/demo/bin/python examples/demo.py

test: check
	$(VENVS)/test/bin/python -m pytest -n auto --dist worksteal

docs: $(VENVS)/docs/ready
	$(VENVS)/docs/bin/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs
	@echo "The documentation is in build/docs/index.html"

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
	$(VENVS)/demo/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,images,torch]'
	touch $@

$(VENVS)/test/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/test
	$(VENVS)/test/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(VENVS)/docs/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/docs
	$(VENVS)/docs/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@
