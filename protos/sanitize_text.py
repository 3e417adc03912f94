"""Make texts from users and programs valid for the wire."""

from pliant.core.support.input_limits import MAX_TEXT


def sanitize_text(text: str) -> str:
    r"""Return a text without surrogates, cut to ``MAX_TEXT`` characters.

    Texts from outside may have surrogates, as ``os.fsdecode`` makes them from file names. They are
    written as ``\udcff``, because protobuf refuses them. gRPC refuses very long messages. Either
    refusal would end the stream. The text is then sent again, so it would end the next stream, too.
    """
    plain = text[: MAX_TEXT + 1].encode("utf-8", "backslashreplace").decode()
    return plain if len(plain) <= MAX_TEXT else f"{plain[: MAX_TEXT - 3]}..."
