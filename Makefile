# Every target sets up what it needs; a machine with Python 3.11 (or later) and make is enough for demo and test.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check extension e2e e2e-figures e2e-editors clean llama-cpp deploy-check

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

# Real editors, VS Code among them in a browser; sets them up on Debian (some minutes, the first time only).
e2e: $(READY) extension
	tests/e2e/setup.sh
	tests/e2e/run.sh
	tests/e2e/editors_setup.sh
	tests/e2e/editors.sh

# All terminal editors: Neovim 0.10 to 0.12, Emacs, Helix; sets them up from Debian's archive, apart from the system.
e2e-editors: $(READY)
	tests/e2e/editors_setup.sh --all
	tests/e2e/editors.sh --all

# What VS Code with the extension and Neovim with the plugin take; asserts nothing. For a machine that does nothing else
# meanwhile.
e2e-figures: $(READY) extension
	tests/e2e/setup.sh
	tests/e2e/run.sh --figures --write benchmarks/results/vscode-replay-$$(date +%F).json
	tests/e2e/editors_setup.sh
	tests/e2e/editors.sh --figures --write benchmarks/results/neovim-replay-$$(date +%F).json

# Completions from llama-cpp-python's server, a real engine that is not ours; builds it the first time (minutes).
llama-cpp: $(READY)
	tests/e2e/llama_cpp.sh

# docs/deploy by the programs that read it: systemd, Docker Compose and Caddy; Debian only.
deploy-check: $(READY)
	tests/e2e/deploy.sh

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Python 3.11 or later is needed; name one with make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up .venv with the packages of constraints.txt (about 1 GB): some minutes, the first time only." >&2
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
