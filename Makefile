.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
BIN := .venv/bin
# Where the packages lie, for a Python in which Stoop is not installed.
gpu bench-engine: export PYTHONPATH := $(CURDIR)/schemas:$(CURDIR)/producer:$(CURDIR)/worker
# the command that installs packages into .venv; `.ci/install` names a faster one
INSTALL ?= $(BIN)/pip install --disable-pip-version-check
# how many processes share the tests; `tests/README.md` has the rules for fixtures
PROCESSES ?= auto
# the tests start hundreds of Pythons, and each would compile all that it imports
unexport PYTHONDONTWRITEBYTECODE
PYTEST = $(BIN)/pytest -q --numprocesses $(PROCESSES) --dist worksteal
# the tests of the rules, of the wire contract and of the manifests, which are part of `make check`
CHECKED = tests/project tests/schemas tests/deploy

.PHONY: help demo test coverage chaos upgrade-test clients check bench bench-engine gpu images images-flow docs dist clean

help: ## show what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.demo ## run real jobs through Redis, S3 and the engine on this machine
	@$(BIN)/stoop demo

test: .venv/.test ## run every other test that needs no GPU, on all cores (PROCESSES=…)
	$(PYTEST) -m 'not gpu' $(addprefix --ignore=,$(CHECKED))

coverage: .venv/.test ## run the tests of both, and print the coverage of every file
	$(PYTEST) -m 'not gpu' --cov --cov-report=term:skip-covered

chaos: .venv/.test ## kill workers, engines and Redis under load (CHAOS_JOBS=… CHAOS_KILLS=… CHAOS_SEED=… CHAOS_CASES=…)
	$(BIN)/python -m tests.chaos

upgrade-test: .venv/.test ## kill workers and producers of two releases side by side (PREVIOUS=a revision of git, CHAOS_JOBS=…)
	$(BIN)/python -m tests.upgrade

clients: .venv/.test ## run clients of other projects, installed into .clients, against a gateway (CLIENTS='litellm or cohere')
	STOOP_CLIENTS=1 $(BIN)/pytest -q -rPs --no-header tests/clients $(if $(CLIENTS),-k '$(CLIENTS)')

check: .venv/.test ## lint, types, import contracts, public names, exported JSON Schemas
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST) $(CHECKED)
	@$(BIN)/python -m tests.project.sizes

bench: .venv/.test ## measure jobs a second through the queue on this machine
	$(BIN)/python -m benchmarks.queue.throughput

bench-engine: ## measure the engine alone, with the Python that has a CUDA torch (PYTHON=…)
	$(PYTHON) -m benchmarks.engine.run direct --on-device --concurrency 1,16,64

# A Python with a CUDA torch often has pytest alone: settings for plugins that it lacks are no error here.
gpu: ## run the tests that need a CUDA device, with the Python that has one (PYTHON=…)
	$(PYTHON) -m pytest -q -m gpu -o addopts=--strict-markers -W ignore::pytest.PytestConfigWarning tests/gpu

images: ## build the container images with docker, podman or buildah (ENGINE=… EXTRA=gpu TRITON=… BASE=debian PIP=host)
	@deploy/images.sh

images-flow: .venv/.test ## run the demo's jobs in containers of the images that were built (ENGINE=docker)
	STOOP_IMAGES=$(or $(ENGINE),docker) $(BIN)/pytest -q -p no:cacheprovider tests/deploy/test_built_images.py

docs: .venv/.test ## build the documentation site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open build/site/index.html"

dist: .venv/.test ## build the sdist and the wheel into dist/
	$(BIN)/python -m hatchling build -d dist

clean: ## remove the virtual environment and what was built
	rm -rf .venv build dist *.egg-info demo-output .coverage .*_cache .hypothesis

# Each marker is one extra of pyproject.toml, installed; it is made anew only when pyproject.toml changes. The extra
# `test` holds all of `demo`.
.venv/.demo .venv/.test: .venv/.%: pyproject.toml | $(BIN)/pip
	@echo "Installing what 'make $*' needs into .venv; the first time takes minutes, most of them for torch:"
	@$(INSTALL) --editable '.[$*]' | sed -un 's/^Collecting /  /p'
	@touch $@ $(if $(filter test,$*),.venv/.demo)

# pip is the last thing a new environment gets: an environment without it was interrupted, and is made again.
$(BIN)/pip:
	@for python in $(PYTHON) python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    exec $$python -m venv --clear .venv; \
	  fi; \
	done; \
	echo "Stoop needs Python 3.11 or newer, and $$($(PYTHON) --version 2>&1 || true) is none." >&2; \
	echo "Install one, or say where it is: make PYTHON=/path/to/python3.12 …" >&2; \
	exit 1
