#!/usr/bin/env bash
# Install the model checker spin and a C compiler for it, unless both are there.
set -euo pipefail

ready() { command -v spin >/dev/null && command -v gcc >/dev/null; }

help_and_exit() {
    echo "error: $1" >&2
    echo "       The protocol's specification is checked with spin and gcc (packages spin, gcc, libc6-dev)." >&2
    echo "       Without them its tests are skipped, but not in CI: see docs/specification.md." >&2
    exit 1
}

# Elsewhere than in CI the tests say by themselves what they lack.
optional_exit() {
    if [ -n "${CI:-}" ]; then help_and_exit "$1"; fi
    echo "ensure_spin: $1; the specification is not checked here" >&2
    exit 0
}

if ready; then exit 0; fi
command -v apt-get >/dev/null || optional_exit "no spin here, and no apt-get to install it with"

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || optional_exit "no spin here; installing it takes root, and there is no sudo"
    sudo=(sudo)
fi
echo "ensure_spin: installing the packages spin, gcc and libc6-dev" >&2
"${sudo[@]}" apt-get update -qq >&2 || optional_exit "apt-get update failed"
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends spin gcc libc6-dev >/dev/null ||
    optional_exit "apt-get could not install spin"
ready || optional_exit "spin was installed, but is not on PATH"
