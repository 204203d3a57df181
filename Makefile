# SESA on one machine: `make run` for the main job, `make test` for the tests. Both install what is missing, once.
#
#   make run ARGS="--name first --set seed=3"      options of `sesa run`
#   make install PYTHON=/path/to/python3.11        another interpreter
#   make install TORCH_INDEX=                      torch from the default package index

PYTHON ?= python3.11
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
VENV ?= .venv
ARGS ?=

CONSTRAINTS := deployments/constraints-cpu.txt
TORCH := $(shell grep -i '^torch==' $(CONSTRAINTS))
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input
LOG := $(VENV)/install.log
STAMP := $(VENV)/.installed

.DELETE_ON_ERROR:
.PHONY: run install test test-long lint clean

run: $(STAMP)
	@$(VENV)/bin/sesa run $(ARGS)

install: $(STAMP)

test: $(STAMP)
	@$(VENV)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not long" $(ARGS)

test-long: $(STAMP)
	@$(VENV)/bin/python -m pytest -m long $(ARGS)

lint: $(STAMP)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The CPU build of torch comes first, so that nothing else pulls the CUDA one. Its index is asked once: without an answer,
# torch comes from wherever pip looks by default.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null \
	  || { echo "SESA needs Python 3.11, and '$(PYTHON)' is none: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "setting up $(VENV), once (some minutes; details in $(LOG))"
	@$(PYTHON) -m venv $(VENV)
	@: > $(LOG)
	@echo "  1 of 2: $(TORCH) for CPU"
	@index=""; if [ -n "$(TORCH_INDEX)" ] && $(VENV)/bin/python -c \
	    'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/torch/", timeout=10)' $(TORCH_INDEX) 2>>$(LOG); \
	  then index="--extra-index-url $(TORCH_INDEX)"; fi; \
	  { $(PIP) $$index $(TORCH) >>$(LOG) 2>&1 || { [ -n "$$index" ] && $(PIP) $(TORCH) >>$(LOG) 2>&1; }; } \
	  || { tail -n 20 $(LOG) >&2; exit 1; }
	@echo "  2 of 2: SESA and everything else"
	@$(PIP) -c $(CONSTRAINTS) -e '.[dev,world]' >>$(LOG) 2>&1 || { tail -n 20 $(LOG) >&2; exit 1; }
	@touch $@
