# Everything here needs only python3 (3.11 or newer), make and a package index.
#
#   make test          lint, types, import layers and all tests, with one summary
#   make soak          the long runs that `make test` leaves out, in bounded time
#   make demo          watch an agent being killed again and again, and finish its job once
#   make format        rewrite the code the way `make lint` wants it
#   make lint          the checks of `make test` without the tests
#   make bench         the benchmarks, into bench/latest.json and the README (nothing is asserted)
#   make bench-plots   cost against length, as pictures in docs/
#   make values        write the tables in docs/values.md anew
#   make constraints   pin the newest versions that pyproject.toml allows
#   make clean         remove what the targets above made (runs and their stores stay)

PYTHON ?= python3
PY := .venv/bin/python
# The stamp names the directory, because a copied .venv still points to where it was made.
READY := .venv/.ready-$(shell pwd | cksum | cut -d' ' -f1)

.PHONY: test soak demo lint format bench bench-plots values constraints clean
.DEFAULT_GOAL := test

test: $(READY)
	@$(PY) tools/check.py

soak: $(READY)
	@$(PY) -m pytest -q -n 2 -m soak --timeout 400 --session-timeout 900

lint: $(READY)
	@$(PY) tools/check.py --no-tests

demo: $(READY)
	@.venv/bin/outlast demo

bench: $(READY)
	@$(PY) -m bench --write

# What draws is an extra, for the few who do.
bench-plots: $(READY)
	@$(PY) -c 'import matplotlib' 2>/dev/null || \
	  $(PY) -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[bench]'
	@$(PY) -m bench.plots

values: $(READY)
	@$(PY) -m tests.codec.table

format: $(READY)
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

# The environment is always made anew, so nothing of an old or half-made one is left in it, and
# its stamp comes last: an install that was cut short is never taken for a good one.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
	  'outlast needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo \
	  '$(PYTHON) cannot make a virtual environment (on Debian: apt-get install python3-venv)' >&2; exit 1; }
	@echo 'setting up .venv (once; again only when pyproject.toml or constraints.txt changes)'
	@$(PYTHON) -m venv --clear .venv
	@$(PY) -m pip install --quiet -c constraints.txt hatchling
	@$(PY) -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[demo,dev,llm]'
	@touch $@

# On the oldest Python that is supported: its pins hold for the newer ones, not the other way round.
constraints: $(READY)
	@$(PY) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo \
	  'pin with the oldest supported Python: make clean constraints PYTHON=python3.11' >&2; exit 1; }
	CUSTOM_COMPILE_COMMAND='make constraints' $(PY) -m piptools compile --quiet --upgrade \
	  --extra bench --extra demo --extra dev --extra llm --strip-extras --no-emit-index-url --no-emit-find-links \
	  --output-file constraints.txt pyproject.toml

clean:
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
