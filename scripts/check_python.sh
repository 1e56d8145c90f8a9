#!/usr/bin/env bash
# Say what is missing before a virtual environment is tried: Python 3.11 or later, with venv and pip inside it.
set -euo pipefail
python=${1:-python3}

if ! command -v "$python" >/dev/null; then
    echo "error: '$python' is not on this machine; on Debian or Ubuntu: apt-get install python3 python3-venv" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "error: '$python' is $("$python" --version 2>&1); Python 3.11 or later is needed." >&2
    echo "       With another one installed: make PYTHON=python3.12 ..." >&2
    exit 1
fi
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "error: '$python' cannot make virtual environments; on Debian or Ubuntu: apt-get install python$version-venv" >&2
    exit 1
fi
