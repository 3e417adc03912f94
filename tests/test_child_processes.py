"""Child processes in Python must not import modules from the working directory.

Python puts the working directory first in the search path of ``-m`` and ``-c``. A user who starts a
command in a folder of others, or a daemon, would execute a module that somebody put there.
"""

from __future__ import annotations

import re

from testkit import PARTS, ROOT, part_files

_UNSAFE = re.compile(r"""(?:sys\.executable|python),\s*"-[mc]\"""")


def test_no_child_process_searches_the_working_directory() -> None:
    product = [part for part in PARTS if part != "examples"]
    files = [file for part in product for file in part_files(part)]
    assert len(files) > 400
    found = [
        str(file.relative_to(ROOT)) for file in files if _UNSAFE.search(file.read_text("utf-8"))
    ]
    assert not found, f"add -P before -m and -c in {', '.join(found)}"
