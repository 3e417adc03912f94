"""Which members of appkit's handles are for resizes, and not for programs."""

from __future__ import annotations

from pliant import appkit
from pliant.appkit.data.array_handles import Handle
from pliant.appkit.data.registered_data import RegisteredData

#: Members of single kinds of data that only a resize or a checkpoint uses.
_OF_KINDS = {
    *("start_with", "split_description", "depends_on_size_only", "layout_for"),
    *("old_and_new_layouts", "followers"),
    *("rebuild", "free", "hear", "learn"),
}
#: Members of the class `Handle` that programs use.
_USED = {"local", "name", "shape", "dtype"}
_INTERNAL = _OF_KINDS | (set(dir(Handle)) - _USED)


def is_internal(cls_name: str, name: str) -> bool:
    """Return whether the reference leaves out a member because programs never use it.

    Only classes of registered data and derived communicators have such members.

    Args:
        cls_name: the name of the class of the member; not all are exported by ``pliant.appkit``.
        name: the name of the member.
    """
    cls = getattr(appkit, cls_name, None)
    is_handle = isinstance(cls, type) and issubclass(cls, RegisteredData | appkit.DerivedComm)
    return is_handle and name in _INTERNAL
