# Every target bootstraps uv by itself into .uv/, a folder of this checkout; nothing is installed elsewhere.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

UV_VERSION := 0.13.8
PYTHON ?= python3
UV := $(CURDIR)/.uv/bin/uv
export UV_PYTHON_DOWNLOADS := never
export UV_PYTHON := $(PYTHON)
BIN := .venv/bin
PYTEST_ARGS ?=
export NO_MKDOCS_2_WARNING := 1

.PHONY: help sync check lint types contracts docs wheel wheel-demo archives test test-all test-trunk test-spark test-lowest test-newest demo image image-files compose kubernetes bench mutants clean

help: ## What the targets do
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

sync: .venv/.synced ## The environment (.venv) and nothing else

# A virtual environment where Python can make one; else a folder beside it (Debian without python3-venv, PEP 668).
$(UV):
	@rm -rf .uv
	@if $(PYTHON) -m venv .uv >/dev/null 2>&1; then \
	  .uv/bin/python -m pip install -q --disable-pip-version-check uv==$(UV_VERSION); \
	elif rm -rf .uv && $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	  $(PYTHON) -m pip install -q --disable-pip-version-check --target .uv/lib uv==$(UV_VERSION) && \
	  mkdir -p .uv/bin && ln -sf ../lib/bin/uv .uv/bin/uv; \
	else \
	  echo "make: $(PYTHON) has neither venv nor pip: install python3-venv (Debian: apt-get install python3-venv)" >&2; exit 1; \
	fi

# Compiled once: every command, every test's process and every Airflow task would do it again where Python may not.
.venv/.synced: pyproject.toml uv.lock | $(UV)
	@$(UV) sync --locked --quiet --compile-bytecode
	@$(BIN)/python -m compileall -q acktrail connectors extras spark_jobs expectations dashboards dags
	@touch $@

demo: sync ## The main job: broker, share groups, export, reconciliation, report
	@$(BIN)/acktrail demo

CLASS_ARCHIVES := PYTHONPATH=tests/support $(BIN)/python tests/support/servers/class_archives.py .test-java

archives: sync ## Archives of the classes of Kafka and Spark, which the JVMs of tests start with
	@$(CLASS_ARCHIVES) >/dev/null

# More processes than cores: many tests wait for brokers, schedulers and time-outs.
test: sync ## The tests, five at a time; the slowest twenty are printed
	@JAVA_HOME=$$($(CLASS_ARCHIVES)) && export JAVA_HOME && \
	$(BIN)/pytest -n 5 --dist loadscope --no-loadscope-reorder --durations=20 $(PYTEST_ARGS)

# A copy without the folders of the branches and their tests, in an environment of its own.
test-trunk: ## All tests of the trunk, without its branches
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	git ls-files -z | grep -zvE '^(extras|tests/extras)/' | xargs -0 cp --parents -t "$$folder" && \
	$(MAKE) -C "$$folder" test

test-all: PYTEST_ARGS += --all
test-all: test ## All tests: also on other releases of Kafka, the longest faults, heavy benchmarks

check: lint types contracts docs wheel ## What CI also runs: lint with plain English, types, import contracts, the documents' site, wheel

lint: sync
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/python tools/plain_english.py
	@$(BIN)/python tools/check_documents.py
	@$(UV) lock --check --quiet

types: sync
	@$(BIN)/mypy
	@$(BIN)/mypy dags/acktrail_provider dags/acktrail_dags dags/*.py

contracts: sync
	@for file in pyproject.toml $(wildcard tests/extras/*/contracts.toml); do \
		PYTHONPATH=simulation:dags $(BIN)/lint-imports --no-logo --config $$file || exit 1; done

docs: sync ## The documents as a site, in the folder site: open site/index.html
	@output=$$($(BIN)/mkdocs build 2>&1) || { echo "$$output" >&2; exit 1; }

wheel: sync
	@rm -rf dist
	@$(UV) build --quiet --wheel --no-build-isolation --out-dir dist
	@$(BIN)/check-wheel-contents dist

COMMA := ,
EMPTY :=
IMAGE_PACKAGES := python3 ca-certificates libstdc++6 tzdata
with_commas = $(subst $(EMPTY) $(EMPTY),$(COMMA),$(strip $(1)))

image-files: wheel ## What container images consist of, below .image: for `podman build`, see docs/how-to/containers.md
	@$(BIN)/python tools/image_files.py connect .image/connect
	@$(BIN)/python tools/image_files.py connect,spark .image/spark

# In .image, as files that `podman load` and `docker load` read. A Debian that is there is used again.
image: image-files archives ## Container images without a registry (root, mmdebstrap, buildah), then their tests
	@tools/build_image.sh connect $(call with_commas,$(IMAGE_PACKAGES))
	@tools/build_image.sh spark $(call with_commas,$(IMAGE_PACKAGES) openjdk-17-jre-headless)
	@$(IN_CONTAINERS) tests/deploy/test_image.py

IN_CONTAINERS = JAVA_HOME=$$($(CLASS_ARCHIVES)) && export JAVA_HOME && $(BIN)/pytest -n 0 --all

# Debian's podman-compose is too old for the file.
compose: sync archives ## deploy/compose.yaml with the images of `make image`: broker, S3 server, worker, page with groups
	@$(UV) venv --quiet --allow-existing .image/podman-compose
	@$(UV) pip install --quiet --python .image/podman-compose podman-compose==1.6.0
	@export PODMAN_COMPOSE=$(CURDIR)/.image/podman-compose/bin/podman-compose && $(IN_CONTAINERS) tests/deploy/test_compose.py

kubernetes: sync archives ## deploy/kubernetes by `podman play kube`, with the images of `make image`
	@$(IN_CONTAINERS) tests/deploy/test_kubernetes.py

# A folder elsewhere, with the lock's versions of what the wheel needs: pip, without an index, finds all of it, or fails.
wheel-demo: wheel ## The wheel, installed by pip in an environment of its own, runs the demo from an empty folder
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && mkdir "$$folder/empty" && \
	$(PYTHON) -m venv "$$folder/venv" && \
	UV_PROJECT_ENVIRONMENT="$$folder/venv" $(UV) sync --locked --quiet --inexact --no-dev --all-extras \
	  --no-install-project --compile-bytecode && \
	"$$folder/venv/bin/python" -m pip install -q --no-index --disable-pip-version-check "$$(ls dist/*.whl)[all]" && \
	cd "$$folder/empty" && env -u PYTHONPATH "$$folder/venv/bin/acktrail" demo

# Versions of all else are the lock's; its constraint on Spark holds in this folder only. Its commands, and what is on
# its path, are the wheel's.
SPARK ?= 4.1
test-spark: wheel ## The jobs' tests on Spark 4.1 with its Delta connector, or on another one: SPARK=4.3
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && python="$$folder/venv/bin/python" && \
	$(UV) export --quiet --locked --no-emit-project --no-hashes --all-extras | grep -v ^pyspark >"$$folder/lock.txt" && \
	$(UV) venv --quiet "$$folder/venv" && \
	$(UV) pip install --quiet --directory "$$folder" --python "$$python" --constraint "$$folder/lock.txt" 'pyspark==$(SPARK).*' \
	  "$$(ls $(CURDIR)/dist/*.whl)[kafka,connect,dashboard,spark,quality]" hypothesis duckdb-ext-delta polars boto3 psutil pytest pytest-timeout pytest-xdist && \
	"$$python" -m pytest -n 0 $(PYTEST_ARGS) tests/jobs $(wildcard tests/connect/stream/test_state_stream*) && \
	"$$python" -m pytest -n 0 --all tests/jobs/test_elsewhere.py -k delta_connector

# The ends of the ranges in pyproject.toml: the demo (share groups, export, reconciliation, validation and two DAGs, on a
# real broker and a real Airflow), then the commands, the gate and an own DAG. With LANE_PYTHON on another Python.
LANE_PYTHON ?= $(PYTHON)
LANE_TESTS := tests/cli/test_groups.py tests/expectations/test_gate.py tests/dags/test_provider_runs.py
test-lowest: ## The demo and some tests of the wheel, with the lowest releases that it takes
test-newest: ## The same with the newest releases on the registry, whatever the lock has
test-lowest test-newest: wheel
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && mkdir "$$folder/empty" && \
	$(BIN)/python tools/lane.py $(@:test-%=%) $(UV) "$(LANE_PYTHON)" "$$(ls $(CURDIR)/dist/*.whl)" "$$folder" && \
	(cd "$$folder/empty" && env -u PYTHONPATH "$$folder/venv/bin/acktrail" demo) && \
	"$$folder/venv/bin/pytest" -n 0 $(PYTEST_ARGS) $(LANE_TESTS)

bench: sync ## Benchmarks, as ratios measured side by side in one run
	@$(BIN)/python benchmarks/run.py

mutants: sync ## Contradict requirements in a copy of the sources; counts what the tests of their rows notice
	@$(BIN)/python tools/mutate.py

clean: ## Remove what the targets made
	rm -rf .venv .uv .test-java .image dist .demo site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
