#!/usr/bin/env bash
# Install a Chromium for the tests of the page, unless one that starts is there. WORLDLINE_CHROMIUM names another one.
set -euo pipefail

starts() { "$1" --version >/dev/null 2>&1; }

find_chromium() {
    local name
    for name in ${WORLDLINE_CHROMIUM:-} chromium chromium-browser google-chrome google-chrome-stable; do
        if command -v "$name" >/dev/null && starts "$name"; then return 0; fi
    done
    return 1
}

help_and_exit() {
    echo "error: $1" >&2
    echo "       The tests of the page drive a real browser. Install Chromium or Chrome and, if it is not on PATH," >&2
    echo "       set WORLDLINE_CHROMIUM to its path; or leave those tests out: make test PYTEST_ARGS=--ignore=tests/e2e" >&2
    exit 1
}

if find_chromium; then exit 0; fi
command -v apt-get >/dev/null || help_and_exit "no Chromium here, and no apt-get to install it with"

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || help_and_exit "no Chromium here; installing it takes root, and there is no sudo"
    sudo=(sudo)
fi
echo "ensure_chromium: installing the package chromium" >&2
"${sudo[@]}" apt-get update -qq >&2 || help_and_exit "apt-get update failed"
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null ||
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-browser >/dev/null ||
    help_and_exit "apt-get could not install chromium"
find_chromium || help_and_exit "the installed Chromium does not start (Ubuntu's is a snap, which needs snapd)"
