# Everything runs from .venv, which each target makes when it is missing or out of date.
# Nothing but Python >= 3.11 (with venv) and make is needed; another Python: make PYTHON=python3.12

BIN := .venv/bin
RUNTIME := .venv/.installed-runtime
DEVELOP := .venv/.installed-develop
WORKERS ?= 2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv test check unit system demo lint format bench protos clean
export PYTHON

# An environment that was moved or copied does not work: make it again.
ifneq ($(shell cat .venv/.made-in 2>/dev/null),$(realpath $(CURDIR)))
.PHONY: $(DEVELOP) $(RUNTIME)
endif

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# One stamp for each set of packages. The larger set holds the smaller one.
$(DEVELOP): pyproject.toml setup.py .ci/venv
	@.ci/venv mpich,dev,deploy $@
	@touch $(RUNTIME)

$(RUNTIME): pyproject.toml setup.py .ci/venv
	@.ci/venv mpich $@

venv: $(DEVELOP) ## Make .venv with all that development needs

test: check unit system ## Check stubs, style and types, then run every test

check: $(DEVELOP)
	$(BIN)/python -m pliant.protos.generate --check
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy tests

# Order the three steps also under `make -j`: they would compete for the same processors.
unit: check
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup -m "not (mpi or cluster)"

system: unit
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "mpi or cluster"

demo: $(RUNTIME) ## Run a cluster on this machine and watch jobs change size
	$(BIN)/pliant demo

lint: check ## Check stubs, style and types

format: $(DEVELOP) ## Rewrite the sources in the house style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(DEVELOP) ## Measure against the budgets
	$(BIN)/python benchmarks

protos: $(DEVELOP) ## Make the stubs from protos/*.proto
	$(BIN)/python -m pliant.protos.generate

clean: ## Remove .venv, builds and caches
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
