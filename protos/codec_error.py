"""The error of messages that cannot be decoded.

It is not in ``codec``, because ``codec`` imports the events of the core. These would be two fifths
of the imports of a node controller, which does not need them.
"""

from pliant.core.support.base_error import PliantError


class CodecError(PliantError, ValueError):
    """A message that no correct program sends; the text names the wrong field."""
