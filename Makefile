# Gaugeblock's one entry point for building, testing and certifying.
# `make help` lists the targets. Everything lives in .venv, build/, models/ and out/.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
MODELS ?= models
STAMP  := $(VENV)/.installed
EXTRAS := serve,reference,test,lint,release
C_SOURCES := $(wildcard engine/src/*.[ch] engine/constrain/*.[ch])

.PHONY: help certify build test test-slow lint format sanitize fuzz identity exact endings schema-suite bench-kernels wheel models clean prerequisites

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

prerequisites:
	@$(PYTHON) tests/ci/prerequisites.py

$(STAMP): pyproject.toml $(C_SOURCES) engine/_engine.c tests/ci/prerequisites.py
	@$(PYTHON) tests/ci/prerequisites.py
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

build: $(STAMP) ## virtual environment with the engine compiled in place

certify: build ## certify SmolLM2 end to end: fetch, check, report, sidecar, verdict
	$(BIN)/certify run manifests/quickstart.yaml --models-root $(MODELS) --out out/quickstart.json --envelopes --force

test: build ## the quick tests (GAUGEBLOCK_MODELS=DIR adds those on real models)
	$(BIN)/python -m pytest -m 'not slow'

test-slow: build ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

models: build ## fetch the pinned real models into $(MODELS)
	$(BIN)/gaugeblock fetch --manifest manifests/release.yaml --models-root $(MODELS)

lint: build ## ruff, mypy --strict, strict C warnings, generated files current
	$(BIN)/python tests/ci/lint.py

format: build ## rewrite Python sources in the project's format
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

sanitize: build ## C core and its C tests under ASan and UBSan
	$(BIN)/python tests/ci/sanitize.py

fuzz: build ## every fuzzer, one minute each (needs clang)
	$(BIN)/python tests/ci/fuzz.py --seconds 60

identity: build ## digests over compilers, optimisation levels, threads, batches, aarch64
	$(BIN)/python tests/identity/run.py

exact: build ## distance to exact arithmetic, beside llama.cpp's (TORCH_PYTHON: a python with torch, transformers)
	@test -n "$(TORCH_PYTHON)" || { echo "exact: give TORCH_PYTHON=PATH, a python that has torch and transformers" >&2; exit 2; }
	$(BIN)/python -m tests.oracle.acceptance_exact --torch-python $(TORCH_PYTHON) $(MODELS)/*.gguf

endings: build ## cut documents of a MaskBench file (DATA) everywhere and judge the endings; vocabularies: $(MODELS)/*.gguf
	@test -n "$(DATA)" || { echo "endings: give DATA=PATH, a MaskBench .jsonl.gz" >&2; exit 2; }
	$(BIN)/python -m tests.oracle.endings $(DATA) $(addprefix --vocab ,$(wildcard $(MODELS)/*.gguf)) $(ARGS)

schema-suite: build ## the draft 2020-12 suite under the constraint engine; renews docs/schema-coverage.md
	$(BIN)/python -m tests.oracle.schema_suite --write

bench-kernels: ## time the matrix kernels against the machine's limits (ARGS: see engine/src/gbbench.c)
	@$(PYTHON) tests/ci/kernels_bench.py $(ARGS)

wheel: build ## abi3 wheel and sdist in dist/, installed and run outside the checkout
	$(BIN)/python tests/ci/wheel.py

clean: ## remove everything that was built or fetched into the checkout, except models
	rm -rf $(VENV) build dist out *.egg-info engine/*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
