"""The child process of `held_as`: becomes another account and calls a function."""

from __future__ import annotations

import os
import pickle
import sys
import traceback

# Loading the function imports its module, which only root may be able to read.
function = pickle.load(sys.stdin.buffer)
result = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
uid = int(sys.argv[1])
if uid:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
os.environ.update(HOME="/nonexistent", USER=str(uid), LOGNAME=str(uid))
try:
    content = (False, function())
except BaseException:
    content = (True, traceback.format_exc())
with result:
    pickle.dump(content, result)
sys.stdin.buffer.read()
