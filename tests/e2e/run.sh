#!/usr/bin/env bash
# Runs the end-to-end proof in a real VS Code: with recorded text, then with the embedded target and its draft.
# Needs tests/e2e/setup.sh, a packaged extension, and the project installed in .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."

cache="${DFLASH_E2E:-${XDG_CACHE_HOME:-$HOME/.cache}/dflash-e2e}"
[[ -x $cache/driver/bin/python ]] || { echo "no browser driver in $cache: run tests/e2e/setup.sh first" >&2; exit 1; }
prove() { "$cache/driver/bin/python" tests/e2e/vscode.py "$@"; }

prove --profile replay --function free_port --typed 6 --picture build/e2e/statement.png
prove --profile replay --function cache_dir --typed 0 --picture build/e2e/body.png
.venv/bin/dflash-lsp fetch embedded
prove --profile embedded --file server/profiles/loading.py --function end --typed 0 --picture build/e2e/embedded.png
