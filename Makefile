# Every target sets up what it needs; a machine with Python 3.11 (or later) and make is enough for demo and test.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check extension e2e clean

demo: $(READY)
	@$(BIN)/dflash-lsp fetch embedded
	@$(BIN)/dflash-lsp complete $(DEMO) --stream --compare --color auto

# A real file of this repository, the cursor at its end: what comes is a whole function.
DEMO := server/cli/table.py --line 12 --character 0

# In file order: the longest file comes first, and does not run alone at the end.
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The VS Code extension: needs Node.js 20 or later.
extension:
	npm ci --no-audit --no-fund
	npm run lint
	npm run build
	npm test
	npm run package

# A real VS Code in a browser; sets up code-server and Chromium on Debian (minutes the first time).
e2e: $(READY) extension
	tests/e2e/setup.sh
	tests/e2e/run.sh

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or later is needed; name one with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up .venv with the packages of constraints.txt (about 1 GB): some minutes, the first time only." >&2
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
