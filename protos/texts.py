"""Words for people, made fit for the wire."""

#: Characters of anybody's own words; more would fill the history.
LONGEST_WHY = 1000


def words(text: str) -> str:
    r"""What can be sent of a text that came from outside: at most ``LONGEST_WHY`` characters.

    Programs, files and users bring halves of surrogate pairs, as ``os.fsdecode`` makes them of a
    file's name; they become ``\udcff``. protobuf raises at one, and gRPC refuses what is very
    long: either ends the stream, and would do so again on the next one.
    """
    plain = text[: LONGEST_WHY + 1].encode("utf-8", "backslashreplace").decode()
    return plain if len(plain) <= LONGEST_WHY else f"{plain[: LONGEST_WHY - 3]}..."
