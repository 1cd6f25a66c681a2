# make demo   the main job, on one machine, through a region's death
# make test   lint, types, import contracts and every test, two files at a time
SHELL := /bin/bash
RUN := .venv/bin/python
DAYS ?= 1

.PHONY: help demo up test lint unit clean
.DEFAULT_GOAL := help

help:  ## say what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

.venv/ready: requirements.txt requirements-dev.txt constraints.txt tools/setup
	@tools/setup

demo: .venv/ready  ## run the main job (DAYS=1, ARGS="--fresh --source FILE ...")
	@$(RUN) -m demo --days $(DAYS) $(ARGS)

up: .venv/ready  ## start Azure on one machine and leave it running until Ctrl-C
	@$(RUN) -m demo up $(ARGS)

test: lint  ## lint, then every test that can run here
	@$(RUN) -m pytest -n 2 $(ARGS)

unit: .venv/ready  ## the fast tests only
	@$(RUN) -m pytest -m "not wire and not spark and not e2e" $(ARGS)

lint: .venv/ready  ## ruff, mypy and the import contracts
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@.venv/bin/lint-imports

clean:  ## remove everything that was made here
	@rm -rf .venv .demo .up .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
