# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup test check demo clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

# Two halves of the tests side by side, each with one thread: on two cores that takes little more than half the time.
HALF = tests/audit tests/experiments tests/report tests/scoring tests/test_cli_audit.py tests/test_cli_report.py \
	tests/training tests/validation
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -p no:cacheprovider

test: setup
	@( $(PYTEST) $(HALF) > $(VENV)/half.log 2>&1; echo $$? > $(VENV)/half.code ) & \
	$(PYTEST) $(HALF:%=--ignore=%); code=$$?; wait; \
	cat $(VENV)/half.log; exit $$(( code + $$(cat $(VENV)/half.code) ))

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/size_guard.py src/fastdime

demo: setup
	$(BIN)/fastdime demo --out demo

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache
