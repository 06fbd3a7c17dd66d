#!/usr/bin/env bash
# Runs the end-to-end proofs in real editors, each suite after the other, and says at the end how each of them went.
# Needs tests/e2e/setup.sh, a packaged extension, and the project installed in .venv.
#
#     tests/e2e/run.sh               all suites
#     tests/e2e/run.sh NAME...       these suites
#     tests/e2e/run.sh --figures     what VS Code and the extension take, measured; nothing is asserted
set -uo pipefail
cd "$(dirname "$0")/../.."

export DFLASH_E2E="${DFLASH_E2E:-${XDG_CACHE_HOME:-$HOME/.cache}/dflash-e2e}"
driver="$DFLASH_E2E/vscode-driver/bin/python"

# Each suite is one line: a name and its command. Pictures and logs go to build/e2e.
suites=(
    "vscode $driver -m pytest -c tests/e2e/pytest.ini --rootdir tests/e2e -o cache_dir=$PWD/build/e2e/cache tests/e2e/vscode"
)

if [[ ${1:-} == --figures ]]; then
    exec "$driver" tests/e2e/vscode/figures.py "${@:2}"
fi
. tests/e2e/again.sh
ended=() failed=0
for suite in "${suites[@]}"; do
    read -r name command <<<"$suite"
    if (($#)) && [[ " $* " != *" $name "* ]]; then continue; fi
    echo "e2e: $name" >&2
    begun=$SECONDS how=passed
    # A fault of a machine that does much else at once is no fault of ours: what failed is run once more, and named.
    if ! $command; then
        again=$(failed_last build/e2e/cache)
        how="passed, at a second try:$again"
        $command --last-failed --last-failed-no-failures none || how="FAILED; at the first try:$again" failed=1
    fi
    ended+=("e2e: $name in $((SECONDS - begun)) s: $how")
done
printf '%s\n' "${ended[@]}" >&2
exit $failed
