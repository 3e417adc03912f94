# Everything runs from .venv, which each target makes when it is missing or out of date.
# Nothing but Python >= 3.11 (with venv) and make is needed; another Python: make PYTHON=python3.12

BIN := .venv/bin
RUNTIME := .venv/.installed-runtime
DEVELOP := .venv/.installed-develop
# For two processors: tests wait for other processes during a part of their time.
WORKERS ?= 4

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install venv test check unit system faults reliability soak demo experiments report docs deb lint format bench protos clean
export PYTHON

# An environment that was moved or copied does not work, so it is made again.
ifneq ($(shell cat .venv/.made-in 2>/dev/null),$(realpath $(CURDIR)))
.PHONY: $(DEVELOP) $(RUNTIME)
endif

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# One stamp for each set of packages. The larger set holds the smaller one.
$(DEVELOP): pyproject.toml .ci/venv
	@.ci/venv mpich,dev,deploy,docs $@
	@touch $(RUNTIME)

$(RUNTIME): pyproject.toml .ci/venv
	@.ci/venv mpich,dashboard $@

install: $(RUNTIME) ## Make .venv with all that is needed to run jobs

venv: $(DEVELOP) ## Make .venv with everything for development

# The types are checked by one process, so tests that start no others run beside it.
test: $(DEVELOP) ## Check stubs, style and types, and run every test
	@$(MAKE) --no-print-directory -j 2 check unit
	@$(MAKE) --no-print-directory system

check: $(DEVELOP)
	$(BIN)/python -m pliant.protos.generate --check
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy tests

# A test that fails is run again alone, up to twice; if it passes then, it is listed as flaky.
# pytest compiles every test module, and keeps the result for the next worker unless it may not.
RUN_TESTS := PYTHONDONTWRITEBYTECODE= PYTHONPATH=tests/support $(BIN)/python -m rerun_failed

unit: $(DEVELOP)
	$(RUN_TESTS) -n $(WORKERS) --dist loadgroup -m "not (mpi or cluster)"

# A quarter of the files name one of the markers. Each worker would import the others for nothing.
SYSTEM_FILES = $$(grep -rlE "mark\.(mpi|cluster)" --include="test_*.py" tests | sort)

system: $(DEVELOP)
	$(RUN_TESTS) -n $(WORKERS) --dist worksteal -m "(mpi or cluster) and not faults" $(SYSTEM_FILES)

# Cases whose result is in .faults.jsonl are not run again; remove the file to run all cases.
faults: check ## Cause every fault at every step of a resize; writes the tables of docs/faults.md
	PLIANT_FAULT_RESULTS=.faults.jsonl $(BIN)/pytest -n $(WORKERS) -m faults tests/faults || true
	PYTHONPATH=tests/support $(BIN)/python -m faultkit.table .faults.jsonl

# Some of the cases: make reliability CASES="18 47"
CASES ?=
REPORT := .reliability.xml
reliability: check ## Run the tests of every case of docs/reliability.md; writes its table
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --junitxml=$(REPORT) \
		--cases="$(CASES)" $$(grep -rlF "mark.case(" --include="test_*.py" tests) || true
	PYTHONPATH=tests/support $(BIN)/python -m casekit.table $(REPORT)

# With another random order: make soak PLIANT_TEST_SEED=2
SOAK_S ?= 600
soak: $(DEVELOP) ## Use a cluster and kill its processes at random for SOAK_S seconds (600)
	PLIANT_SOAK_S=$(SOAK_S) PLIANT_SOAK_TURN_S=30 $(BIN)/pytest -s tests/faults/test_soak.py

# In a browser: make demo OPEN=1
demo: $(RUNTIME) ## Run a cluster on this machine and watch jobs change size
	$(BIN)/pliant demo $(if $(OPEN),--open)

# Rows whose result is in real-results are not run again. A row: make experiments ROW=malleable_pct=50
experiments: $(DEVELOP) ## Run published experiments with real jobs, for hours; continues after an interruption
	$(BIN)/python -m pliant.examples.experiments.adaptive_vs_rigid run $(if $(ROW),--where $(ROW))

# Results are kept in experiment-results. Experiments with workload logs need PLIANT_WORKLOADS.
report: $(DEVELOP) ## Simulate published experiments for 20 minutes and write a report; continues when repeated
	$(BIN)/pliant experiment report --within 20m

docs: $(DEVELOP) ## Build the documentation site into build/site; warnings are errors
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/site
	@echo "open build/site/index.html"

# WHEELS is a folder that `pliant deploy wheels` has filled.
WHEELS ?= wheels
deb: $(DEVELOP) ## Build a Debian package into dist from the wheelhouse WHEELS (wheels)
	PIP=$(BIN)/pip sh deploy/packaging/debian/build $(WHEELS) dist

lint: check ## Check stubs, style and types

format: $(DEVELOP) ## Format the sources with ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(DEVELOP) ## Run the benchmarks and compare them with their budgets
	$(BIN)/python benchmarks

protos: $(DEVELOP) ## Generate the stubs from protos/*.proto
	$(BIN)/python -m pliant.protos.generate

clean: ## Remove .venv, builds and caches
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
