"""``python -m pliant.nodectl`` is ``pliant nodectl``."""

import sys

from pliant.nodectl.daemon import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
