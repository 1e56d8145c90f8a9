"""`python -m worldline`: the command line."""

from __future__ import annotations

import sys

from worldline.cli import main

sys.exit(main())
