"""Commands and programs of the documentation, for the tests that run them."""

from pagekit.blocks import Block, Marks, read_blocks, read_marks

__all__ = ["Block", "Marks", "read_blocks", "read_marks"]
