#!/usr/bin/env bash
# Checks docs/deploy as far as a machine without GPUs and containers can: with systemd, Docker Compose and a real Caddy.
# Caddy and Compose come from Debian, unpacked into the cache folder of setup.sh; nothing outside it changes.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache="${DFLASH_E2E:-${XDG_CACHE_HOME:-$HOME/.cache}/dflash-e2e}"
mkdir -p "$cache"
what="deploy setup"
. tests/e2e/once.sh
. tests/e2e/debian.sh
done_once caddy 1 unpack --alone caddy bookworm caddy
done_once compose 1 unpack --alone compose forky docker-compose
PATH="$cache/caddy/usr/bin:$cache/compose/usr/libexec/docker/cli-plugins:$PATH" exec .venv/bin/python -m pytest tests/test_deploy.py -rs "$@"
