"""Packages whose public names are imported when they are first used.

``pliant.core.values.sizes`` is 2 ms of imports and the whole of ``pliant.core`` is 75 ms. A
package that imports its public names eagerly makes every user of one small module pay for all of
them, and commands such as ``jobsub`` are started thousands of times.
"""

from collections.abc import Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package (PEP 562).

    Args:
        package: its ``__name__``.
        modules: the module of the package that defines each public name.
    """

    def resolve(name: str) -> object:
        from importlib import import_module  # here, because commands use no lazy name

        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return resolve
