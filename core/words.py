"""Numbers in sentences."""


def many(number: int, thing: str) -> str:
    """``1 processor``, ``4 processors``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
