# make demo   the main job, on one machine, through the outage of a region
# make simulate   the engine in virtual time, from seeds (SEEDS=2000 FIRST=0 CLIMATE=rough)
# make chaos   real processes under load while they are killed (SECONDS=180 MESSAGES= SEED=1)
# make conformance   the live tests of Microsoft's SDKs (SUITES=cosmos ARGS="--only 'test_q*'")
# make test   lint, types, import contracts and every test, two files at a time
SHELL := /bin/bash
RUN := .venv/bin/python
DAYS ?= 1
SEEDS ?= 2000
FIRST ?= 0
PROFILE ?= rough
SECONDS ?= 180
MESSAGES ?=
SEED ?= 1
SUITES ?= cosmos servicebus

.PHONY: help demo demo-saga chaos conformance up test lint unit spark-package clean simulate
.DEFAULT_GOAL := help

help:  ## say what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.venv/ready: requirements.txt requirements-cli.txt requirements-dev.txt constraints.txt tools/setup
	@tools/setup

demo: .venv/ready  ## run the main job (DAYS=1, ARGS="--fresh --source FILE ...")
	@$(RUN) -m demo --days $(DAYS) $(ARGS)

demo-saga: .venv/ready  ## run orders as sagas through the outage of a region (ARGS="--orders N ...")
	@$(RUN) -m demo.sagas $(ARGS)

up: .venv/ready  ## Azure on one machine until Ctrl-C, with the page, a producer's settings and curls (ARGS="--reload")
	@$(RUN) -m cli up $(ARGS)

test: lint  ## lint, then every test that can run here
	@$(RUN) -m pytest -n 2 $(ARGS)

unit: .venv/ready  ## the fast tests only
	@$(RUN) -m pytest -m "not wire and not spark and not e2e" $(ARGS)

simulate: .venv/ready  ## the engine in two simulated regions (SEEDS=2000 FIRST=0 PROFILE=rough|mild|fair)
	@$(RUN) -m simulation --seeds $(SEEDS) --first $(FIRST) --profile $(PROFILE) --jobs 2 $(ARGS)

chaos: .venv/ready  ## real processes under load, and killed (SECONDS=180 MESSAGES=N SEED=1)
	@$(RUN) -m chaos --seconds $(SECONDS) $(if $(MESSAGES),--messages $(MESSAGES)) \
		--seed $(SEED) $(ARGS)

conformance: .venv/ready  ## Microsoft's own live tests, against local/ (SUITES="cosmos servicebus")
	@$(RUN) -m conformance $(SUITES) $(ARGS)

lint: .venv/ready  ## ruff, mypy and the import contracts
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@.venv/bin/lint-imports

spark-package: .venv/ready  ## build what a Spark cluster needs, in dist/spark
	@$(RUN) -m spark.package $(ARGS)

clean:  ## remove everything that was made here
	@rm -rf .venv .demo .demo-sagas .chaos .up dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
