"""Reduce the time that a command takes; commands that are started often import this module first.

The imports make so many objects that the garbage collector runs often, and finds nothing. Without
these collections, `jobsub` needs a tenth less processor time. When it ends, the interpreter
collects twice more, unless the objects are frozen, which saves another tenth.

argparse imports `gettext`, which compiles a large regular expression, to translate its own words.
Python has no translations of them. Therefore argparse gets functions that do not translate, which
saves 1.3 ms.
"""

from __future__ import annotations

import atexit
import gc
import sys
from types import ModuleType

#: More new objects than a command makes before it has its answer. Longer runs do collect.
_NEW_OBJECTS = 50_000

gc.set_threshold(_NEW_OBJECTS)
atexit.register(gc.freeze)

if not sys.modules.keys() & {"argparse", "gettext"}:
    _without_translations = ModuleType("gettext")
    vars(_without_translations).update(
        gettext=str, ngettext=lambda one, several, count: one if count == 1 else several
    )
    sys.modules["gettext"] = _without_translations
    import argparse  # noqa: F401 - so that it takes these functions

    del sys.modules["gettext"]  # others get the real one
