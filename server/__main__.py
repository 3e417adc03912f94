"""Run the server: ``python -m pliant.server``."""

import sys

from pliant.server.daemon import main

sys.exit(main(sys.argv[1:]))
