"""The error of messages that cannot be decoded.

It is not in ``codec``, which imports the events of the core: that is two fifths of the imports of a
node controller, which needs none of them.
"""

from pliant.core.support.base_error import PliantError


class CodecError(PliantError, ValueError):
    """A message that no correct program sends; the text names the wrong field."""
