# make setup | demo | test | test-all | test-oldest | coverage | docs | lint | format | bench
PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
BIN := $(VENV)/bin
# For two cores: the process with the clusters mostly waits for theirs.
PROCESSES ?= 3
# The tests start hundreds of processes: that each compiles the package anew takes a minute in all.
export PYTHONDONTWRITEBYTECODE :=
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-all test-oldest coverage docs lint format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mllkm-scale needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --group dev --editable .
	touch $@

demo: setup
	$(BIN)/mllkm demo

test: setup lint
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES)

# With the tests that take long.
test-all: setup lint
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --slow

# On the lowest versions that pyproject.toml allows.
test-oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(OLDEST)/bin/python jobs/oldest.py > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --group test --editable . --constraint $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pytest --numprocesses=$(PROCESSES)

coverage: setup
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --cov=mllkm_scale --cov-report=term:skip-covered --cov-report=html:build/coverage

# The tests build the site too, in the same way.
docs: setup
	$(BIN)/python -m sphinx -b html -d build/doctrees --fail-on-warning --keep-going --quiet --jobs 2 docs build/docs
	@echo "the site: build/docs/index.html"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	-$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python jobs/bench/weight_solvers.py
	$(BIN)/python jobs/bench/solve.py
	$(BIN)/python jobs/bench/usps.py
	$(BIN)/python jobs/bench/mnist.py
	$(BIN)/python jobs/bench/ijcnn1.py
	$(BIN)/python jobs/bench/covtype.py
	$(BIN)/python jobs/bench/budgets.py
	$(BIN)/python jobs/bench/uci.py
	$(BIN)/python jobs/bench/tables.py
	$(BIN)/python jobs/bench/letter.py
	$(BIN)/python jobs/bench/selection.py
	$(BIN)/python jobs/bench/workers.py --overlap
	$(BIN)/python jobs/bench/scan_rate.py
	$(BIN)/python jobs/bench/screening.py
	$(BIN)/python jobs/bench/startup.py
	$(BIN)/python jobs/bench/component.py
	$(BIN)/python jobs/bench/additive.py
	$(BIN)/python jobs/bench/learned.py
	$(BIN)/python jobs/bench/learning_rate.py
	$(BIN)/python jobs/bench/mnist8m.py --picture docs/images/mnist8m.png
	$(BIN)/python jobs/bench/passes.py
	$(BIN)/python jobs/simulate.py --measure
	$(BIN)/python jobs/bench/path.py
	$(BIN)/python jobs/bench/serving.py
	$(BIN)/python jobs/bench/export.py
	$(BIN)/python jobs/bench/soak.py

clean:
	rm -rf $(VENV) $(OLDEST) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
