# Two commands set everything up on a fresh machine; each keeps its own environment.
#   make demo   train four methods on the embedded benchmark and report on them (CPU, minutes)
#     make demo DEMO='--orders 5'   in all five orders of the classes: README's table
#   make test   style, types and every test
#   make hard   kills, power cuts (as root), flipped bits and mutated files, two hours
#   make test-adapters   the adapters for other libraries, with these libraries (5 GB)
#   make test-cluster   --on slurm in a real SLURM of three nodes, started for it (as root, minutes),
#     and --on ray in a real Ray of two
#   make docs   the documentation, into build/docs
#   make dist   wheel and sdist, checked; the demo runs from the wheel, installed apart
#   make figures   the pictures in docs/, from runs/demo and from results/
PYTHON ?= python3
SHELL := bash
VENVS := .venvs

.PHONY: demo test hard test-adapters test-cluster docs dist figures check fix clean

demo: $(VENVS)/demo/ready
	$(VENVS)/demo/bin/python examples/demo.py $(DEMO)

# One worker per core, so one thread per worker: more would wait for each other.
test: export OMP_NUM_THREADS := 1
test: check
	$(VENVS)/test/bin/python -m pytest -n auto --dist worksteal

# The campaigns of tests/hard at length, each of which ends with its counts; what they find is in
# build/hard. All of them run, whatever one finds.
HARD := PYTHONPATH=tests $(VENVS)/test/bin/python -m
hard: $(VENVS)/test/ready
	failed=; \
	$(HARD) hard.kills --count 2000 || failed="$$failed kills"; \
	$(HARD) hard.power_cuts --count 500 || failed="$$failed power_cuts"; \
	$(HARD) hard.bits || failed="$$failed bits"; \
	$(HARD) hard.fuzz --count 100000 || failed="$$failed fuzz"; \
	$(HARD) hard.crashes --count 30 || failed="$$failed crashes"; \
	if [ "$$failed" ]; then echo "findings:$$failed"; exit 1; fi

docs: $(VENVS)/docs/ready
	$(VENVS)/docs/bin/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs
	@echo "The documentation is in build/docs/index.html"

# Nothing of the checkout is imported: neither folder nor path leads to it.
dist: $(VENVS)/dist/ready
	rm -rf dist
	$(VENVS)/dist/bin/python -m build
	$(VENVS)/dist/bin/python -m twine check --strict dist/*
	$(VENVS)/dist/bin/python tests/check_dist.py dist
	apart=$$(mktemp -d) && trap 'rm -rf "$$apart"' EXIT && $(PYTHON) -m venv "$$apart/venv" && \
	"$$apart/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$$(echo dist/*.whl)[cli,report,torch]" && \
	cp examples/demo.py "$$apart" && cd "$$apart" && unset PYTHONPATH && \
	venv/bin/polarbear --version && venv/bin/python demo.py $(DEMO)

# What reports on the demo, on memories of several sizes and on the committed results show. The
# pictures of real data are all that their summaries allow; those of predictions are the demo's.
POLARBEAR := $(VENVS)/demo/bin/polarbear
DRAW := $(POLARBEAR) report --formats svg,png
DRAWN := build/figures
# Of all that ran, the paper's methods and Kin: more curves than these cover one another.
PAPERS := finetune,er,er-infinite,agem,icarl-cnn,icarl-norm,lucir,kin,incremental-joint
# And what others have published, beside ER, Kin and the bounds: one or two of a family as curves,
# all of them in the table of decisions.
FIELD := er,er-infinite,mas,gdumb,replay,icarl-nme,wa,bic,lwf,er-ace,ss-il,podnet,hcv,kin,slda,ranpac,incremental-joint
FIELD_ALL := $(FIELD),mask-seen,gem,ewc,si,rwalk,eeil,il2m,lwm,derpp,mtkd,ncm,joint
figures: DEMO := --orders 5
figures: demo build/memory/ready
	rm -rf $(DRAWN)
	$(DRAW) runs/demo --out $(DRAWN)/demo
	$(DRAW) build/memory --figures memory --out $(DRAWN)/memory
	$(DRAW) results/iirc-cifar --paper --methods $(PAPERS) --out $(DRAWN)/iirc-cifar
	$(DRAW) results/iirc-cifar --methods $(FIELD) --figures average-pw-js,bytes-kept --out $(DRAWN)/field
	$(DRAW) results/iirc-cifar --methods $(FIELD_ALL) --figures bytes-kept --out $(DRAWN)/field-all
	rm -f docs/figures/*
	cp $(DRAWN)/demo/figures/{levels,superclasses,average-pw-js,average-jaccard,per-task,forgetting,questions,river}.svg docs/figures
	cp $(DRAWN)/demo/figures/{confusion,confusion-icarl-norm,gallery-icarl-norm,side-by-side}.png docs/figures
	cp $(DRAWN)/demo/tables/{results-pw-js,last-scores}.md docs/figures
	cp $(DRAWN)/memory/figures/memory.svg docs/figures
	for file in $(DRAWN)/iirc-cifar/{figures/*.svg,tables/*.md}; do \
		cp $$file docs/figures/iirc-cifar-$${file##*/}; done
	for file in $(DRAWN)/field/figures/*.svg $(DRAWN)/field-all/tables/decisions.md; do \
		cp $$file docs/figures/iirc-cifar-field-$${file##*/}; done

build/memory/ready: $(VENVS)/demo/ready
	rm -rf build/memory
	for kept in 2 5 20; do $(POLARBEAR) run er --benchmark iirc-shapes --orders 0-1 \
		--memory-per-class $$kept --out build/memory/$$kept || exit 1; done
	touch $@

# Every adapter with its real library, 5 GB in two environments: Avalanche, Continuum and timm need
# torchvision, whose compiled part does not load beside a CPU build of torch. All libraries are
# there, so that here a test does not skip for want of one: it fails.
FROM_HUGGING_FACE := tests/named/test_new_benchmark.py::test_a_hugging_face_data_set_on_disk_gives_the_same_stream
test-adapters: export POLARBEAR_ALL_LIBRARIES := 1
test-adapters: $(VENVS)/adapters/ready $(VENVS)/avalanche/ready
	$(VENVS)/adapters/bin/python -m pytest tests/adapters $(FROM_HUGGING_FACE) -k "not (avalanche or continuum or timm)"
	$(VENVS)/avalanche/bin/python -m pytest tests/adapters -k "avalanche or continuum or timm"

# Needs Debian's slurmctld, slurmd, slurm-client and munge; without them it skips, and says so. Ray
# has an environment of its own.
test-cluster: export POLARBEAR_CLUSTER := 1
test-cluster: $(VENVS)/test/ready $(VENVS)/ray/ready
	$(VENVS)/ray/bin/python -m pytest tests/cluster/test_ray.py
	$(VENVS)/test/bin/python -m pytest tests/cluster/test_slurm.py

check: $(VENVS)/test/ready
	$(VENVS)/test/bin/ruff check .
	$(VENVS)/test/bin/ruff format --check .
	$(VENVS)/test/bin/mypy
	$(VENVS)/test/bin/lint-imports

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

$(VENVS)/dist/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/dist
	$(VENVS)/dist/bin/python -m pip install --quiet --disable-pip-version-check build twine
	touch $@

$(VENVS)/adapters/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/adapters
	$(VENVS)/adapters/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,datasets,jax,report,torchmetrics,transformers]' tensorflow-cpu pytest iirc==1.0.1
	touch $@

$(VENVS)/avalanche/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/avalanche
	$(VENVS)/avalanche/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[avalanche,cli,continuum,report,timm]' pytest
	touch $@

$(VENVS)/ray/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(VENVS)/ray
	$(VENVS)/ray/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[ray]' pytest
	touch $@
