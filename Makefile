# Every target sets up a virtual environment in .venv first: `demo` and `up` with what they run on ($(RUN)), the others with
# all that tests and development need, Spark among it ($(STAMP)).
# `make` alone explains the targets.

VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.installed-run
STAMP := $(VENV)/.installed
DOCS := $(VENV)/.installed-docs
CACHE := .cache

# The tests start many processes: none compiles Python that another has.
unexport PYTHONDONTWRITEBYTECODE

# The first interpreter that is new enough; `make PYTHON=/path/to/python3 …` chooses another.
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	"$$p" -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && echo "$$p" && break; done)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

.PHONY: help
help:  ## explain the targets
	@echo "usage: make TARGET [ARGS='…'], where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: $(RUN)  ## real quotes and thresholds that move, checked by an oracle; ARGS=map or ARGS=traders: in the browser
	@$(BIN)/covey demo $(ARGS)

.PHONY: up
up: $(RUN)  ## start the overlay of examples/five.yaml on this machine; Ctrl-C stops it
	@$(BIN)/covey up examples/five.yaml $(ARGS)

# The kernels are compiled once, before the workers of pytest start. (Their tests run without the compiler as well:
# tests/matcher/jit/test_compiling.py.)
.PHONY: test
test: $(STAMP) java chromium compile  ## every test, the random ones with few draws from a new seed (ARGS goes to pytest)
	@$(BIN)/pytest -n auto --dist loadgroup $(ARGS)

# Beside the tests, which take longer, brokers are kept under a low load for five minutes; not where ARGS chooses tests.
SOAK := $(CACHE)/soak.log
.PHONY: test-all
test-all: $(STAMP) java chromium compile  ## the random tests with many draws, and the thorough ones that `test` leaves out
	@mkdir -p $(CACHE); if [ -z '$(ARGS)' ]; then nice -n 5 $(BIN)/python -m benchmarks soak --seconds 300 --rate 2000 --visitors 1 >$(SOAK) 2>&1 & fi; \
	COVEY_TESTS=all $(BIN)/pytest -n auto --dist loadgroup -m 'random or thorough' $(ARGS); tests=$$?; \
	if [ -z '$(ARGS)' ]; then wait $$! || { tests=1; cat $(SOAK); echo "python -m benchmarks soak did not pass"; }; fi; \
	exit $$tests

.PHONY: compile
compile: $(STAMP)
	@$(BIN)/covey compile

.PHONY: lint
lint: $(STAMP)  ## ruff: common mistakes and style
	@$(BIN)/ruff check .

# mypy and mkdocstrings do not follow the import hook of an editable install, so they are shown the folders under their
# package's name.
.PHONY: rooms
rooms:
	@mkdir -p $(CACHE)/types/covey
	@for room in bridge cli gateway matcher overlay proto sim spark testing; do ln -sfn "$(CURDIR)/$$room" "$(CACHE)/types/covey/$$room"; done
	@ln -sfn "$(CURDIR)/benchmarks" $(CACHE)/types/benchmarks

.PHONY: types
types: $(STAMP) rooms  ## mypy --strict
	@MYPYPATH=$(CACHE)/types $(BIN)/mypy -p covey -p benchmarks

.PHONY: docs
docs: $(DOCS) rooms  ## the documents as a site in .cache/site; a dead link or anchor ends it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS) && echo ".cache/site/index.html"

# An old protoc: its stubs run on every protobuf from 4.25 on, those of a newer one on none that is older than itself. In its .pyi
# a field that is called `bool`, as one of Value is, hides the type from the fields behind it.
PROTOC := $(CACHE)/protoc
.PHONY: proto
proto:  ## generate the stubs in proto/ from its .proto files
	@[ -x $(PROTOC)/bin/python ] || "$(PYTHON)" -m venv $(PROTOC)
	@$(PROTOC)/bin/python -m pip --disable-pip-version-check install --quiet grpcio-tools==1.62.3 'setuptools<81'
	@mkdir -p $(CACHE)/stubs
	@$(PROTOC)/bin/python -m grpc_tools.protoc -Icovey/proto=proto --python_out=$(CACHE)/stubs \
		--pyi_out=$(CACHE)/stubs --grpc_python_out=$(CACHE)/stubs proto/broker.proto proto/storage.proto
	@sed -i -e '1i import builtins as _builtins' -e 's/: bool\>/: _builtins.bool/g' $(CACHE)/stubs/covey/proto/*.pyi
	@cp $(CACHE)/stubs/covey/proto/broker_pb2* $(CACHE)/stubs/covey/proto/storage_pb2.py* proto/

.PHONY: bench
bench: $(STAMP)  ## events per second and latency through a chain of three brokers
	@$(BIN)/covey bench chain $(ARGS)

.PHONY: sim
sim: $(STAMP)  ## random histories of whole overlays in virtual time, judged by checkers
	@$(BIN)/covey sim fuzz $(ARGS)

.PHONY: clean
clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) $(CACHE) .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist covey.egg-info
	find bridge cli gateway matcher overlay proto sim spark testing tests examples -name __pycache__ -prune -exec rm -rf {} +

# Spark, which judges the simulator's runs, needs Java 17.
.PHONY: java
java:
	@.ci/java

# The pages of reports are tried in Chromium.
.PHONY: chromium
chromium:
	@.ci/chromium

PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --prefer-binary

# The quotes' package names pandas as a requirement, but needs it no more.
$(RUN): pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "Covey needs Python 3.11 or newer with its venv module; install it (Debian: apt install" \
		"python3-venv) or say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c '$(NEW_ENOUGH)' || { echo "$(PYTHON) is no Python 3.11 or newer with its venv module" >&2; exit 1; }
	@echo "Installing Covey into $(VENV); the first time takes up to a minute."
	@[ -x $(BIN)/python ] || "$(PYTHON)" -m venv $(VENV)
	@$(PIP) -e '.[gateway]'
	@$(PIP) --no-deps 'bokeh-sampledata>=2026.1'
	@touch $@

$(DOCS): pyproject.toml | $(RUN)
	@$(PIP) -e '.[docs]'
	@touch $@

$(STAMP): pyproject.toml | $(RUN)
	@echo "Installing what tests and development need; the first time takes a few minutes."
	@$(PIP) -e '.[sim,dev]'
	@touch $@
