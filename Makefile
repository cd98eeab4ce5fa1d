# Needs python3 (3.11 to 3.13) and nothing else: what is used lives in virtual environments in this folder.
#
#   make install               the environment of one Airflow, which the other commands make when they need it
#   make demo                  the main job in a real Airflow, with a summary
#   make demo-ui               the same, leaving Airflow running, and opening it, its page of mail and the emulator's inbox
#   make test-unit             the tests that need neither a server nor Airflow's database, in seconds
#   make test                  all tests that do not depend on how fast the machine is, on the newest Airflow
#   make test AIRFLOW=3.0      the same on an older one (3.0, 3.1, 3.2, 3.3)
#   make test ARGS='-k lists'  some of them
#   make test-real             what runs in processes of its own: a running Airflow, a browser, kills, load
#   make test-sqlite           what a running Airflow does, with Airflow's own tables in SQLite
#   make test-all              every test on every supported Airflow
#   make test-lowest           the fast tests on the oldest Airflow, with the lowest versions that pyproject.toml allows
#   make test-pythons          every test on Python 3.12 and 3.13, in an Ubuntu and a Debian that have them; needs what
#                              .ci/bare-machine says
#   make soak                  random faults for ten minutes; MAIL_SOAK_SECONDS and MAIL_SOAK_SEED choose others
#   make soak-process          imports, loads and waits in one process for fifteen minutes: its memory, and what it leaves
#   make test-faults           five times as many drawn faults and sequences, a hundred kills of each part that takes events,
#                              and tasks killed at every step in a real Airflow
#   make test-demo-ui          every example DAG in `make demo-ui`, in a browser too, and all ways to end it
#   make test-backfill         a backfill of 90 days on a real scheduler, of which `make test` takes 6
#   make test-celery           mapped imports on LocalExecutor and, a million contacts, on Celery; needs redis-server
#   make test-types            what mypy and pyright say of DAG files that use the package
#   make test-quickstart       docs/quickstart.md, typed as it is printed
#   make test-dbt              the dbt package in dbt/, built by dbt on Postgres and DuckDB
#   make mutants               small changes to the core, and which of them no test notices
#   make lint                  ruff, mypy, and which modules may import which
#   make docs                  what is generated: the names of api/, and the parts of docs/ made from code and examples
#   make site                  the documentation site, in build/site, strictly: no warning, no dead link
#   make test-site             the same in a browser: on a phone, searched, without a request to anywhere else
#   make site-serve            the same, on http://127.0.0.1:8000
#   make build                 sdist and wheel in dist/, checked, and installed into a new environment
#   make bench                 all operations against what a user writes: the table of docs/performance.md, in 35 minutes
#   make bench-quick           the same in five minutes, with small sizes: whether something became slower by a third
#   make clean                 away with all that these commands made
#
# PYTHON=python3.12 chooses the interpreter, WORKERS=1 the number of processes that run tests.

PYTHON ?= python3
AIRFLOW ?= 3.3
AIRFLOWS := 3.0 3.1 3.2 3.3
ARGS ?=
# One more than there are processors: some tests mostly wait. Each worker collects the tests, in ten seconds of CPU.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() + 1, 8))')

VENV := $(if $(filter $(lastword $(AIRFLOWS)),$(AIRFLOW)),.venv,.venv-$(AIRFLOW))
RUN := $(VENV)/bin/python
PYTEST = $(RUN) -m pytest --numprocesses $(WORKERS) --no-loadscope-reorder
CONSTRAINTS := constraints/airflow-$(AIRFLOW).txt
INSTALL := $(VENV)/bin/uv pip install --quiet --python $(RUN) --constraints $(CONSTRAINTS)
SITE ?= build/site
# Named after the interpreter, so that another one gets a new environment. Evaluated once: make evaluates a recursive
# variable at each use.
PYTHON_MINOR := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
INSTALLED := $(VENV)/.installed-$(PYTHON_MINOR)
SITE_INSTALLED := .venv-docs/.installed-$(PYTHON_MINOR)
BUILD_INSTALLED := .venv-build/.installed-$(PYTHON_MINOR)
DBT_INSTALLED := .venv-dbt/.installed-$(PYTHON_MINOR)
LOWEST_INSTALLED := .venv-lowest/.installed-$(PYTHON_MINOR)

# Python keeps what it has compiled, also where the environment forbids it: else each of the many processes that the tests
# start compiles Airflow anew, which takes it twice as long.
export PYTHONDONTWRITEBYTECODE :=

# dlt takes a variable of this name for the number of its own processes.
unexport WORKERS

.PHONY: help install demo demo-ui test-unit test test-real test-sqlite test-all test-lowest test-pythons soak soak-process test-faults test-demo-ui test-backfill test-celery test-types test-quickstart test-dbt mutants lint docs site test-site site-serve build bench bench-quick clean

help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' Makefile

install: $(INSTALLED)

demo: $(INSTALLED)
	$(RUN) -m example_dags.demo $(ARGS)

demo-ui: $(INSTALLED)
	$(RUN) -m example_dags.demo --keep $(ARGS)

# By folder, since only looking through the others takes longer than these tests.
test-unit: $(INSTALLED)
	$(PYTEST) -m unit $(ARGS)

test: $(INSTALLED)
	$(PYTEST) $(ARGS)

test-real: $(INSTALLED)
	$(PYTEST) tests/real $(ARGS)

test-sqlite: $(INSTALLED)
	MAIL_TEST_METADATA=sqlite $(PYTEST) tests/real/airflow $(ARGS)

test-all:
	set -e; for airflow in $(AIRFLOWS); do MAIL_ALL_CASES=1 $(MAKE) test test-real test-types test-quickstart AIRFLOW=$$airflow; done

test-lowest: $(LOWEST_INSTALLED)
	.venv-lowest/bin/python -m pytest --numprocesses $(WORKERS) -m unit $(ARGS)

test-pythons:
	BARE_MIRROR="deb http://archive.ubuntu.com/ubuntu noble main universe" .ci/bare-machine make test
	BARE_MIRROR="deb http://deb.debian.org/debian trixie main" .ci/bare-machine make test

soak: $(INSTALLED)
	MAIL_SOAK_SECONDS=$${MAIL_SOAK_SECONDS:-600} MAIL_SOAK_SEED=$${MAIL_SOAK_SEED:-$$(date +%s)} \
	  $(RUN) -m pytest tests/real/faults/test_soak.py $(ARGS)

soak-process: $(INSTALLED)
	MAIL_SOAK_PROCESS_SECONDS=$${MAIL_SOAK_PROCESS_SECONDS:-900} \
	  $(RUN) -m pytest -s tests/real/faults/test_soak_process.py $(ARGS)

test-faults: $(INSTALLED)
	MAIL_ALL_FAULTS=1 MAIL_ALL_CASES=1 $(PYTEST) tests/faults tests/machines tests/real/faults tests/real/webhook tests/real/airflow/test_crashes.py $(ARGS)

test-demo-ui: $(INSTALLED)
	$(RUN) -m pytest tests/real/extra/test_demo.py $(ARGS)

test-backfill: $(INSTALLED)
	MAIL_BACKFILL_DAYS=$${MAIL_BACKFILL_DAYS:-90} $(RUN) -m pytest tests/real/airflow/test_statistics_runs.py -k backfill $(ARGS)

test-celery: $(INSTALLED)
	@command -v redis-server >/dev/null || { echo "redis-server is needed. On Debian and Ubuntu: apt-get install redis-server"; exit 1; }
	$(INSTALL) --group celery
	MAIL_CELERY=1 $(RUN) -m pytest tests/real/airflow/test_mapped_import.py $(ARGS)

test-types: $(INSTALLED)
	$(RUN) -m pytest tests/real/extra/test_signatures_typed.py $(ARGS)

test-quickstart: $(INSTALLED)
	$(RUN) -m pytest tests/real/extra/test_quickstart.py $(ARGS)

test-dbt: $(INSTALLED) $(DBT_INSTALLED)
	MAIL_TEST_DBT=1 $(RUN) -m pytest tests/tasks/test_dbt.py $(ARGS)

mutants: $(INSTALLED)
	$(INSTALL) --group mutants
	$(RUN) .ci/mutants.py

lint: $(INSTALLED)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(VENV)/bin/lint-imports --no-cache

docs: $(INSTALLED)
	$(RUN) docs/exports.py
	$(RUN) docs/embed.py
	$(RUN) docs/tables.py
	$(RUN) docs/monitoring.py
	$(RUN) docs/dbt.py
	WRITE_PAGES=1 $(RUN) -m pytest -q tests/tasks/test_operations_page.py tests/document/test_conformance_page.py \
	  tests/test_public_names.py

site: $(SITE_INSTALLED)
	.venv-docs/bin/python docs/site/build.py $(SITE)

test-site: $(INSTALLED) $(SITE_INSTALLED)
	$(RUN) -m pytest tests/real/extra/test_site.py $(ARGS)

site-serve: site
	.venv-docs/bin/python -m http.server --bind 127.0.0.1 --directory $(SITE) 8000

build: $(BUILD_INSTALLED)
	.ci/build

bench: $(INSTALLED)
	$(RUN) benchmarks/all.py --write $(ARGS)

bench-quick: $(INSTALLED)
	$(RUN) benchmarks/all.py --quick $(ARGS)

clean:
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov build dist
	find . -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml emulator/pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: $(PYTHON) is `$(PYTHON) --version`. Try PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || \
	  { echo "$(PYTHON) -m venv does not work. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Installing Airflow $(AIRFLOW) and the tools into $(VENV) (once)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check uv
	@$(INSTALL) --override constraints/overrides.txt --editable . --editable ./emulator --group dev \
	  $(if $(filter .venv,$(VENV)),--group lake)
	@$(INSTALL) mysqlclient 2>/dev/null || \
	  echo "mysqlclient cannot be compiled here: the tests of MySQL use mysql-connector-python alone. To test both, on Debian" \
	    "and Ubuntu: apt-get install libmariadb-dev pkg-config gcc python3-dev, then make clean"
	@touch $@

# The environments without Airflow: .venv-docs, .venv-build and .venv-dbt have the dependency groups of these names.
$(SITE_INSTALLED) $(BUILD_INSTALLED) $(DBT_INSTALLED): pyproject.toml constraints/docs.txt constraints/build.txt constraints/dbt.txt
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check uv
	@group=$(patsubst .venv-%,%,$(@D)); \
	  $(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --constraints constraints/$$group.txt --group $$group
	@touch $@

$(LOWEST_INSTALLED): pyproject.toml emulator/pyproject.toml constraints/lowest constraints/airflow-3.0.txt
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(PYTHON) constraints/lowest > $(@D)/constraints.txt
	@$(@D)/bin/uv pip install --quiet --python $(@D)/bin/python --constraints $(@D)/constraints.txt \
	  --override constraints/overrides.txt --editable . --editable ./emulator --group dev
	@touch $@
