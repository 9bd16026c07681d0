.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test check bench gpu clean

help: ## show what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.demo ## run real jobs through Redis, S3 and the engine on this machine
	$(BIN)/stoop demo

test: .venv/.test ## run every test that needs no GPU
	$(BIN)/pytest --cov --cov-report=term:skip-covered

check: .venv/.test ## lint, types, import contracts, public names, exported JSON Schemas
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/project

bench: .venv/.test ## measure jobs a second through the queue on this machine
	$(BIN)/python -m benchmarks.queue

gpu: ## run the tests that need a CUDA device, with the Python that has one
	$(PYTHON) -m pytest -q -m gpu tests/gpu

clean: ## remove the virtual environment and what was built
	rm -rf .venv build dist *.egg-info demo-output

.venv/.demo: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[demo]'
	@touch $@

.venv/.test: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[test]'
	@touch $@ .venv/.demo
