"""The error of messages that cannot be decoded.

It is not in ``codec``, because ``codec`` imports the events of the core. A node controller does not
need these events, and they would be two fifths of its imports.
"""

from pliant.core.support.base_error import PliantError


class CodecError(PliantError, ValueError):
    """A message that no correct program sends; the error text names the wrong field."""
