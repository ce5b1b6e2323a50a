# Every target makes .venv itself; nothing but Python 3.11+, git and make is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: demo test lint bench docs mutants soak browser clean

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check "pip>=25.1"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --group dev -e .
	@touch $@

demo: $(STAMP)
	$(BIN)/python -m glue.agents.review.demo

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -q

bench: $(STAMP)
	$(BIN)/python bench/run.py

docs: $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check --group docs
	$(BIN)/mkdocs build --strict

mutants: $(STAMP)
	$(BIN)/python bench/mutants.py

soak: $(STAMP)
	$(BIN)/pytest -q -m soak

browser: $(STAMP)
	$(BIN)/pytest -q -m browser

clean:
	rm -rf $(VENV) build dist site *.egg-info
