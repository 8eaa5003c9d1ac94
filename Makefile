.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-all check bench docs lock clean

# The interpreter for .venv; found when it is not given.
PYTHON ?=
# Tests start hundreds of processes, each of which would compile all modules anew.
export PYTHONDONTWRITEBYTECODE =
# Test processes; each that needs Spark starts its own, and keeps a module's tests together.
WORKERS ?= 2
IN_WORKERS = -n $(WORKERS) --dist loadscope --no-loadscope-reorder
# The parts of all tests: together they take hours, which need not be in one piece.
PARTS ?= $(shell seq 0 19)

help: ## Show what can be done
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: ## Prepare .venv with the frazil command, and fetch the jars
	@PYTHON="$(PYTHON)" scripts/setup.sh

demo: setup ## Freeze a stream of made-up events into an Iceberg table in ./lake
	@.venv/bin/frazil demo

test: setup check ## Check, and run the tests that each change must pass, with a slice of the slow ones
	.venv/bin/python -m pytest $(IN_WORKERS) --tier=change --durations=25

test-fast: setup ## Run the tests that need no Spark
	.venv/bin/python -m pytest $(IN_WORKERS) --tier=fast

test-all: setup check ## Check and run all tests, in 20 parts (PARTS="3 4" runs two of them)
	@for part in $(PARTS); do \
	  .venv/bin/python -m pytest $(IN_WORKERS) --tier=all --slice=$$part --result=docs/test-results.md || failed=1; \
	done; test -z "$$failed"

check: setup ## Lint, check the format and the types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: setup ## Measure against bare Spark, and write benchmarks/results
	.venv/bin/python -m benchmarks

docs: setup ## Write the pages that are made from the code, and build the site of the documentation in site/
	.venv/bin/python scripts/error_codes.py
	.venv/bin/python -m frazil.doors.yaml.reference >docs/reference.md.new
	mv docs/reference.md.new docs/reference.md
	@# Not --quiet: warnings that are not shown do not stop the build.
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build
	@echo "open site/index.html"

lock: ## Resolve pyproject.toml into requirements.lock (UPGRADE=--upgrade takes the newest versions)
	uv pip compile --quiet pyproject.toml --group dev --all-extras --universal --generate-hashes --no-header $(UPGRADE) -o requirements.lock
	echo uv | uv pip compile --quiet - --universal --generate-hashes --no-header --no-annotate $(UPGRADE) -o scripts/uv.txt

clean: ## Remove .venv and what tools leave behind, but neither ./lake nor the cache
	rm -rf .venv .setup-lock .mypy_cache .ruff_cache .pytest_cache .hypothesis dist site spark-warehouse metastore_db derby.log
	find src tests -name __pycache__ -prune -exec rm -rf {} +
