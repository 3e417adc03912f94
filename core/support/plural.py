"""Numbers in sentences."""


def plural(number: int | str, thing: str, things: str = "") -> str:
    """``1 processor``, ``4 processors``, ``2-8 processors``.

    Args:
        number: how many; sizes are a number, too, if they are one (``str(sizes)``).
        thing: what is counted, one of it.
        things: more of it, where that is not ``thing`` with an s.
    """
    if number in (1, "1"):
        return f"1 {thing}"
    return f"{number} {things}" if things else f"{number} {thing}s"
