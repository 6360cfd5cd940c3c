# Every target makes what it needs; nothing has to be installed by hand but Python >= 3.11.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed-dev
DEMO   := .venv-demo
FUZZ_S ?= 60
DEMO_STAMP := $(DEMO)/.installed

.PHONY: demo test check bench fuzz endurance faults screenshots systemd docs clean format lint types contracts deps spelling

demo: $(DEMO_STAMP)  ## measure the two bundled models on this machine, choose, and serve
	$(DEMO)/bin/mtpd demo $(DEMO_ARGS)

test: $(STAMP)  ## every test that this machine can run; says what it left out (tests/needs.py)
	$(BIN)/coverage erase
	$(BIN)/pytest --all-must-run -n 2 --dist worksteal --cov --cov-report= $(TEST_ARGS)
	$(BIN)/coverage report

check: format lint types contracts deps spelling docs test  ## all that CI runs

format: $(STAMP)
	$(BIN)/ruff format --check .

lint: $(STAMP)
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

contracts: $(STAMP)
	$(BIN)/lint-imports

deps: $(STAMP)
	$(BIN)/deptry .

spelling: $(STAMP)
	$(BIN)/codespell

docs: $(STAMP)  ## the pages of docs/ as one book in build/docs; a warning is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env -b html docs build/docs

bench: $(STAMP)  ## measure, print, never assert; numbers go to docs/benchmarks.md
	tests/bench/get_nginx.sh .bench/nginx
	$(BIN)/python -m tests.bench

fuzz: $(STAMP)  ## schemathesis over the control API, then atheris over every reader, FUZZ_S each
	MTPD_ENDURANCE=1 $(BIN)/pytest --all-must-run -o min_tests=2 -o min_tests_that_need= -n 2 tests/fuzz
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	for target in $$($(BIN)/python -m tests.fuzz.targets); do \
	  $(BIN)/python -m tests.fuzz.guided $$target $(FUZZ_S) || exit 1; done

screenshots: $(STAMP)  ## docs/images/dashboard-*.png; minutes, needs Chromium; look at them
	$(BIN)/python -m tests.browser.screenshots

endurance: $(STAMP)  ## the tests that `make test` runs in part, in full
	MTPD_ENDURANCE=1 $(BIN)/pytest --all-must-run -o min_tests=4 -o min_tests_that_need= tests/faults/test_switches_under_load.py tests/faults/test_restarts_under_load.py

faults: $(STAMP)  ## the fault suite with its full counts: 5 000 simulated worlds, 200 kills, ...
	MTPD_ENDURANCE=1 $(BIN)/pytest --all-must-run -o min_tests=20 -o min_tests_that_need= -n 2 --dist worksteal tests/faults

systemd: $(STAMP)  ## the units under a real systemd in namespaces of its own; needs root
	MTPD_REQUIRE=nested $(BIN)/pytest -m nested

clean:
	rm -rf $(VENV) $(DEMO) .bench .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find mtpd tuner tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[embedded,amd,nvidia,dev]'
	touch $@

$(DEMO_STAMP): pyproject.toml
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check '.[embedded]'
	touch $@
