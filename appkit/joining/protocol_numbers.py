"""The protocol numbers of the join handshake between joining and running ranks."""

from pliant.protos.versions import PROTOCOL, mismatch

#: The oldest protocol that is accepted: both sides prove that they know the secret of the resize.
#: In protocol 1, joining ranks sent the secret; in protocol 0, both sides pickled their classes.
OLDEST = 2
#: The two numbers that each side sends with its first message.
NUMBERS = {"protocol": PROTOCOL, "oldest_reader": OLDEST}
#: Longest line that is read before the other side has proved itself, in bytes.
MAX_UNPROVEN_BYTES = 4096


def join_mismatch(who: str, protocol: object, oldest_reader: object) -> str:
    """Return why this process and another one cannot be in the same job; empty if they can.

    Args:
        who: name of the other process, for the text.
        protocol: the protocol number of the other process; None from versions that had no numbers.
        oldest_reader: the oldest protocol that can read what the other process sends.
    """
    found = [0 if number is None else number for number in (protocol, oldest_reader)]
    for number in found:
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            return f"{who}: protocol: expected a number from 0, got {number!r}"
    first, second = (int(str(number)) for number in found)
    return mismatch(who, first, second, OLDEST)
