"""`python -m breeze_lab` is the command `breeze-lab`."""

import sys

from .cli import main

sys.exit(main())
