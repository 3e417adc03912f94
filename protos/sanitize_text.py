"""Make texts from users and programs valid for the wire."""

from pliant.core.support.input_limits import MAX_TEXT


def sanitize_text(text: str) -> str:
    r"""Return a text without surrogates, cut to ``MAX_TEXT`` characters.

    Texts from outside may have surrogates, as ``os.fsdecode`` makes them from file names; they are
    written as ``\udcff``. protobuf refuses surrogates, and gRPC refuses very long messages: either
    would end the stream, and the next one, too.
    """
    plain = text[: MAX_TEXT + 1].encode("utf-8", "backslashreplace").decode()
    return plain if len(plain) <= MAX_TEXT else f"{plain[: MAX_TEXT - 3]}..."
