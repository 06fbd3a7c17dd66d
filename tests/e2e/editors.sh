#!/usr/bin/env bash
# Runs the proofs in terminal editors: Neovim 0.11 with the plugin, or everything that editors_setup.sh --all sets up.
#
#   editors.sh [--all] [PYTEST ARGUMENTS...]
#   editors.sh --figures [ARGUMENTS...]        what a key takes in Neovim, measured; nothing is asserted
#
# Needs editors_setup.sh (with --all) and the project installed in .venv, or the server named by $DFLASH_LSP.
set -euo pipefail
cd "$(dirname "$0")/../.."

cache="${DFLASH_E2E:-${XDG_CACHE_HOME:-$HOME/.cache}/dflash-e2e}"
[[ -x $cache/terminal/bin/pytest ]] || { echo "no terminal in $cache: run tests/e2e/editors_setup.sh first" >&2; exit 1; }
if [[ ${1:-} == --figures ]]; then exec "$cache/terminal/bin/python" tests/e2e/editors/latency.py "${@:2}"; fi
which=(-m "not all_editors")
if [[ ${1:-} == --all ]]; then
    shift
    which=(--neovim 0.10,0.11,0.12)
fi
run=("$cache/terminal/bin/pytest" -c tests/e2e/editors/pytest.ini -o "cache_dir=$PWD/build/e2e/editors-cache" "${which[@]}" tests/e2e/editors "$@")
. tests/e2e/again.sh
# A fault of a machine that does much else at once is no fault of ours: what failed is run once more, and named.
"${run[@]}" && exit
again=$(failed_last build/e2e/editors-cache)
"${run[@]}" --last-failed --last-failed-no-failures none && how="passed, at a second try" || how="FAILED; at the first try"
echo "e2e: terminal editors $how:$again" >&2
[[ $how == passed* ]]
