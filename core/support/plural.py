"""Numbers with nouns in sentences."""


def plural(number: int | str, noun: str, nouns: str = "") -> str:
    """Return a number with its noun: ``1 processor``, ``4 processors``, ``2-8 processors``.

    Args:
        number: the number, or sizes as text.
        noun: the noun in the singular.
        nouns: the plural, if it is not the singular with an s.
    """
    if number in (1, "1"):
        return f"1 {noun}"
    return f"{number} {nouns}" if nouns else f"{number} {noun}s"
