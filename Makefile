# make demo   the main job, on one machine, through the outage of a region
# make simulate   the engine in virtual time, from seeds (SEEDS=5000 FIRST=0 PROFILE=rough)
# make chaos   real processes under load while they are killed (SECONDS=180 MESSAGES= SEED=1)
# make conformance   the live tests of Microsoft's SDKs (SUITES=cosmos ARGS="--only 'test_q*'")
# make fuzz   mutated AMQP and HTTP, against emulator/ (SECONDS=180 ARGS="--seed 1 --service cosmos")
# make check   two minutes: lint, types, import contracts, each promise in memory, the fast tests
# make test   what CI runs: every kind of test, the large ones as samples
# make proof   everything at full size, for hours (PARTS="chaos audit" SEEDS=100000)
# Each first prepares what it needs in .venv (PYTHON=/path/to/python names the interpreter of a new one).
SHELL := /bin/bash
RUN := .venv/bin/python
DAYS ?= 1
SEEDS ?=
PARTS ?=
FIRST ?= 0
PROFILE ?= rough
SECONDS ?= 180
MESSAGES ?=
SEED ?= 1
SUITES ?= cosmos servicebus

# The tests start some hundred processes, and each would compile the project's modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help docs screenshots demo demo-saga chaos conformance fuzz up check test proof lint ruff types contracts bandit audit lock \
	spark-package clean simulate
.DEFAULT_GOAL := help

help:  ## say what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

.venv/ready: requirements.txt cli/requirements.txt cli/requirements-dev.txt spark/requirements.txt emulator/pyproject.toml \
		.ci/requirements-dev.txt .ci/constraints.txt .ci/setup
	@.ci/setup

.venv/ready-for-tests: .venv/ready emulator/tests/wire/packages.py \
		emulator/tests/wire/strangers/requirements.txt emulator/tests/wire/javascript/package.json
	@.ci/setup tests

demo: .venv/ready  ## run the main job (DAYS=1, ARGS="--fresh --source FILE ...")
	@$(RUN) -m proof.demo --days $(DAYS) $(ARGS)

demo-saga: .venv/ready  ## run orders as sagas through the outage of a region (ARGS="--orders N ...")
	@$(RUN) -m proof.demo.sagas $(ARGS)

up: .venv/ready  ## Azure on one machine until Ctrl-C, with the page, a producer's settings and curls (ARGS="--reload")
	@$(RUN) -m cli up $(ARGS) || [ $$? -eq 130 ]

check: .venv/ready  ## lint, each promise in memory and the fast tests, in two minutes
	@$(RUN) -m tests check

test: .venv/ready-for-tests  ## every kind of test, the large ones as samples; CI runs this
	@$(RUN) -m tests test

proof: .venv/ready-for-tests  ## everything at full size, for hours (PARTS="chaos audit" SEEDS=100000)
	@$(RUN) -m tests proof $(if $(SEEDS),--seeds $(SEEDS)) $(foreach part,$(PARTS),--part $(part))

simulate: .venv/ready  ## the engine in two simulated regions (SEEDS=5000 FIRST=0 PROFILE=rough|fair)
	@$(RUN) -m proof.simulation --seeds $(or $(SEEDS),5000) --first $(FIRST) --profile $(PROFILE) --jobs 2 $(ARGS)

chaos: .venv/ready  ## real processes under load, and killed (SECONDS=180 MESSAGES=N SEED=1)
	@$(RUN) -m proof.chaos --seconds $(SECONDS) $(if $(MESSAGES),--messages $(MESSAGES)) \
		--seed $(SEED) $(ARGS)

conformance: .venv/ready  ## Microsoft's own live tests, against emulator/ (SUITES="cosmos servicebus")
	@cd emulator && ../$(RUN) -m conformance $(SUITES) $(ARGS)

fuzz: .venv/ready  ## valid AMQP and Cosmos DB requests, mutated, against emulator/ (SECONDS=180 ARGS="--seed 1")
	@cd emulator && ../$(RUN) -m fuzz --seconds $(SECONDS) $(ARGS)

screenshots: .venv/ready-for-tests  ## every view of the operations page in both themes, in .screenshots
	@LOCKSTEP_SCREENSHOTS=.screenshots $(RUN) -m pytest -q tests/e2e/test_every_view.py $(ARGS)

docs: .venv/ready  ## the documentation as a site, in dist/docs; every link is checked
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --config-file docs/site/mkdocs.yml $(ARGS)

lint: ruff types contracts bandit  ## ruff, mypy, bandit and the import contracts

ruff: .venv/ready
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

types: .venv/ready
	@$(RUN) -m mypy

contracts: .venv/ready
	@.venv/bin/lint-imports
	@cd emulator && ../.venv/bin/lint-imports

bandit: .venv/ready
	@$(RUN) -m bandit -q -c pyproject.toml -r function_app.py lockstep.py functions shared spark cli infra

audit: bandit  ## look for secrets, unsafe code and packages with known holes (the last needs a network)
	@$(RUN) -m pytest -q tests/unit/test_no_secret_is_committed.py
	@$(RUN) -m pip install -q -r .ci/requirements-audit.txt
	@.ci/audit

lock: .venv/ready  ## write the hashes of what is deployed (infra/requirements.lock) after a change of requirements.txt
	@$(RUN) -m pip install -q -r .ci/requirements-audit.txt
	@$(RUN) -m piptools compile -q --generate-hashes --strip-extras --no-emit-index-url --no-emit-options \
		--allow-unsafe --no-annotate --no-header --output-file infra/requirements.lock requirements.txt

spark-package: .venv/ready  ## build what a Spark cluster needs, in dist/spark
	@$(RUN) -m spark.package $(ARGS)

clean:  ## remove everything that was made here
	@rm -rf .venv .demo .demo-sagas .chaos .up dist emulator/build emulator/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
