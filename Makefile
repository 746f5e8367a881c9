# Sets nbrefine up from nothing and runs it: `make demo`, `make test`.
#
# Needs Python 3.11 or newer with venv, make and git; on Debian:
#   apt-get install python3 python3-venv make git

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo "$$name"; break; }; done)

MODEL ?= local
REPLIES := scripted:nbrefine/examples/penguins-replies.yaml
JOBS ?= 2

.PHONY: help demo test lint bench clean

help:
	@echo 'make demo   set up, fetch a small model, solve the example task, write demo.ipynb'
	@echo 'make test   set up, then lint, type check and test everything'
	@echo 'make lint   set up, then lint and type check only'
	@echo 'make bench  set up, then measure speed and memory (an hour; see benchmarks/README.md)'
	@echo 'make clean  remove the environment and all caches'

# Another MODEL than `local` has nothing to fetch: scripted:FILE, or a server's openai:NAME.
demo: $(VENV)/.ready-demo
	@case '$(MODEL)' in local*) \
		$(BIN)/nbrefine models pull '$(MODEL)' || { \
		echo 'Without a model, "make demo MODEL=$(REPLIES)" plays recorded replies' >&2; \
		exit 1; } ;; esac
	@$(BIN)/nbrefine run nbrefine/examples/penguins.yaml --model '$(MODEL)' \
		-o demo.ipynb --overwrite

test: lint
	$(BIN)/pytest -n $(JOBS) --dist loadfile

lint: $(VENV)/.ready-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.ready-test
	@$(BIN)/python benchmarks/run.py

$(VENV)/.ready-demo: pyproject.toml | $(BIN)/python
	@echo 'Installing nbrefine and what it needs (about 800 MB on disk, once) ...'
	@$(BIN)/python -m pip install --quiet --editable '.[local,data]'
	@touch $@

$(VENV)/.ready-test: pyproject.toml | $(BIN)/python
	@echo 'Installing nbrefine, its tests and tools (about 1.1 GB on disk, once) ...'
	@$(BIN)/python -m pip install --quiet --editable '.[local,data,dev]'
	@touch $@

$(BIN)/python:
	@if [ -z '$(PYTHON)' ]; then \
		echo 'nbrefine needs Python 3.11 or newer; on Debian: apt-get install python3 python3-venv' >&2; \
		exit 1; \
	elif ! '$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null; then \
		echo 'This Python cannot make virtual environments; on Debian: apt-get install python3-venv' >&2; \
		exit 1; \
	fi
	@rm -rf $(VENV)
	@'$(PYTHON)' -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache demo.ipynb demo.files demo.nbrefine.jsonl
