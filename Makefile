# make test, make demo: both make what they need and start at once when it is there.
#   PYTHON=...  the interpreter (3.11 or newer) to make the environment with; python3 by default
#   VENV=...    where the environment is kept; .venv by default
#   WORKERS=... test processes at a time; 2 by default
#   ARGS=...    more arguments for pytest or for `ptx demo`
PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
WORKERS ?= 2
BIN    := $(VENV)/bin

# What stands behind PYTHON, in three words: version, checksum of the real path, path. The base interpreter is meant,
# not an activated environment before it: an environment cannot be remade from inside itself.
IDENTITY := $(shell $(PYTHON) -c 'import os, sys, zlib; base = getattr(sys, "_base_executable", sys.executable); \
	mark = zlib.crc32(os.path.realpath(base).encode()) & 0xffffffff; \
	print("%d.%d.%d %d %s" % (sys.version_info[:3] + (mark, base)))' 2>/dev/null)
VERSION  := $(word 1,$(IDENTITY))
BASE     := $(wordlist 3,99,$(IDENTITY))
STAMP    := $(VENV)/.ptx-$(VERSION)-$(word 2,$(IDENTITY))
PINS     := constraints/$(if $(filter 3.11.%,$(VERSION)),py311,py312).txt
PIP      := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS)

.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test test-slow benchmark lint docs pins clean
help:
	@echo 'make demo       fit a vision transformer and a part-of-speech tagger by four engines (minutes)'
	@echo 'make test       the test suite without its slow part'
	@echo 'make test-slow  the slow statistical gates'
	@echo 'make benchmark  speed, as ratios measured side by side, alone on the machine (ARGS="--repeats 5" is shorter)'
	@echo 'make lint       ruff, pyright, import contracts'
	@echo 'make docs       the documentation, into site/'
	@echo 'make pins       rewrite the constraints file of this Python with the newest packages that fit'
	@echo 'make clean      remove the environment, caches and built files'
	@echo 'Options: PYTHON=python3.12  VENV=.venv-3.12  ARGS="..."'

demo: $(STAMP)-run
	$(BIN)/ptx demo $(ARGS)

# Compiling is most of what the fast tests cost: here it is quick and its result slow. The slow part runs what users run.
# Where the first stack's XLA may, it leaves out MLIR, which costs half of each compilation; the second's has no choice.
QUICKLY := --xla_backend_optimization_level=0 $(if $(findstring py311,$(PINS)),--xla_cpu_use_fusion_emitters=false)
test: export XLA_FLAGS := $(XLA_FLAGS) $(QUICKLY)
test: $(STAMP)-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not slow' $(ARGS)

test-slow: $(STAMP)-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow $(ARGS)

benchmark: $(STAMP)-run
	$(BIN)/python -m benchmarks $(ARGS)

lint: $(STAMP)-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

docs: $(STAMP)-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pins: $(STAMP)
	$(BIN)/python -m venv --clear $(VENV)-pins
	$(VENV)-pins/bin/python -m pip install --quiet --upgrade -e '.[test,dev,docs]'
	{ sed -n '/^#/p' $(PINS); $(VENV)-pins/bin/python -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+=='; } \
		> $(PINS).new
	mv $(PINS).new $(PINS)
	rm -rf $(VENV)-pins

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .import_linter_cache build dist site

# A stamp of another interpreter's name does not count, so a change of PYTHON makes the environment anew.
$(STAMP):
	@test -n '$(VERSION)' || { echo 'ptx needs Python 3.11 or newer; "$(PYTHON)" does not run.' \
		'Name one that does: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'ptx needs Python 3.11 or newer;' \
		'"$(PYTHON)" is $(VERSION).' \
		'Name a newer one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12' >&2; exit 1; }
	'$(BASE)' -m venv --clear $(VENV)
	@touch $@

$(STAMP)-run: $(STAMP) pyproject.toml $(PINS)
	$(PIP) -e .
	@touch $@

$(STAMP)-test $(STAMP)-dev $(STAMP)-docs: $(STAMP)-%: $(STAMP) pyproject.toml $(PINS)
	$(PIP) -e '.[$*]'
	@touch $@
