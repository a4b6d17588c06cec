# Each target sets up all it needs in .venv. `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
COMPILED := $(CURDIR)/build/compiled
WORKERS ?= 6
# Not compiled on installation: most modules of PySpark, pandas and numba are never imported.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# PySpark comes as source: packing 450 MB of jars into a wheel without compressing them again is faster.
PYSPARK = import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(next(name for name in extras["cluster"] if name.startswith("pyspark")))
# Keep bytecode whatever the shell says: otherwise each of a hundred processes compiles it again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo java up compiled compiled-build quick test verify verify-compiled lint format bench outside chaos soak docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Penstock needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) --config-settings=--build-option=--compression=stored "$$($(BIN)/python -c '$(PYSPARK)')"
	$(PIP) --editable '.[dev]'
	@$(BIN)/python -m compileall -q src # a broker starts twice as fast, also where nothing may be cached
	@touch $@

java: $(STAMP) ## Java for Spark: found, or installed with apt, or explained
	@tools/java.sh $(BIN)/python

demo: java ## the main job, start to end: broker, events, pipeline on Spark, checked (needs Java)
	$(BIN)/python examples/clickstream/demo.py

up: compiled-build ## a single broker in the foreground, on 127.0.0.1:9092
	PYTHONPATH=$(COMPILED) $(BIN)/penstock up

lint: $(STAMP) ## format, lint, types, imports
	$(BIN)/ruff format --check src tests bench examples tools
	$(BIN)/ruff check src tests bench examples tools
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the sources in the house format
	$(BIN)/ruff format src tests bench examples tools
	$(BIN)/ruff check --fix src tests bench examples tools

compiled: $(STAMP)
	@$(BIN)/pytest --collect-only -q > /dev/null || true # what is wrong the tests will tell

compiled-build: $(STAMP) ## build/compiled: a copy of src with the listed modules compiled, if there is a C compiler
	@$(BIN)/python tools/compile_modules.py $(COMPILED) --or-plain

quick: export PYTHONHASHSEED = 0
quick: lint java ## lint, unit tests, 20 simulation seeds, one librdkafka and one Spark round trip: 3 minutes (needs Java)
	$(BIN)/pytest -q -n 2 tests/unit
	$(BIN)/pytest -q -m quick tests/simulation tests/clients tests/spark

# The same commit gives the same verdict: fixed examples (tests/conftest.py), fixed seeds, fixed hashes.
test: export PYTHONHASHSEED = 0
test: $(STAMP) ## everything, 9 to 18 minutes on 2 cores with the installation (needs Java)
	@$(MAKE) --no-print-directory -j 2 lint java compiled # each alone leaves a core idle
	PROFILE=test $(BIN)/pytest -n $(WORKERS) --dist loadgroup

verify: lint java ## the long form of every class, up to 60 minutes (needs Java)
	PROFILE=verify $(BIN)/pytest -n $(WORKERS) --dist loadgroup --timeout 3000
	PENSTOCK_TEST_CONFIG=storage.engine=commitlog $(BIN)/pytest -n $(WORKERS) --dist loadgroup tests/clients tests/cluster

# Simulations, planted bugs and what else replaces methods of classes run on the plain build alone.
verify-compiled: java ## clients, clusters, crashes and Spark on the compiled build, long form (needs Java and a C compiler)
	$(BIN)/python tools/compile_modules.py $(COMPILED)
	PYTHONPATH=$(COMPILED) PENSTOCK_TEST_BUILD=compiled PROFILE=verify $(BIN)/pytest -n $(WORKERS) --dist loadgroup --timeout 3000 tests/clients tests/cluster tests/crash tests/scenarios tests/spark tests/unit/network tests/unit/protocol tests/unit/purgatory tests/unit/replication tests/unit/storage

outside: java ## clients in other languages, Kafka's tools, Streams, Connect, MirrorMaker: a table of what passed (needs Java)
	$(BIN)/python -m tests.outside

chaos: $(STAMP) ## long fault campaigns
	PROFILE=release $(BIN)/pytest -n $(WORKERS) --dist loadgroup --timeout 7200 tests/properties tests/crash

soak: java ## long runs that are killed again and again (needs Java)
	PROFILE=release $(BIN)/pytest --timeout 7200 tests/spark/test_tables.py tests/spark/test_stops.py

bench: java ## benchmarks as ratios to a peer in the same run; writes bench/results (needs Java)
	$(BIN)/python -m bench.storage
	$(BIN)/python -m bench.storage --engine commitlog
	$(BIN)/python -m bench.storage --kafka
	$(BIN)/python -m bench.timers
	$(BIN)/python -m bench.messages
	$(BIN)/python -m bench.columns
	$(BIN)/python -m bench.zero_copy
	$(BIN)/python -m bench.produce_200
	$(BIN)/python -m bench.partitions
	$(BIN)/python -m bench.validation
	$(BIN)/python -m bench.request_limits
	$(BIN)/python -m bench.broker
	$(BIN)/python -m bench.requests
	$(BIN)/python -m bench.security
	$(BIN)/python -m bench.groups
	$(BIN)/python -m bench.transactions
	$(BIN)/python -m bench.cluster
	$(BIN)/python -m bench.lag_time
	$(BIN)/python -m bench.spark

docs: $(STAMP) ## regenerate docs/configuration.md, the table of docs/acls.md and the module index of ARCHITECTURE.md
	$(BIN)/python -m penstock.config.document > docs/configuration.md
	$(BIN)/python -m penstock.apis.permissions_page
	$(BIN)/python tools/module_index.py

clean: ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
