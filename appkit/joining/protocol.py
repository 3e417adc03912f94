"""The protocol number of the join handshake, in which joining ranks meet the running ones."""

from pliant.protos.versions import PROTOCOL, mismatch

#: The first protocol in which both sides prove that they know the secret of the resize. In
#: protocol 1 joining ranks sent it, in protocol 0 both sides pickled their own classes.
OLDEST = 2
#: The two numbers that each side sends with its first message.
NUMBERS = {"protocol": PROTOCOL, "oldest_reader": OLDEST}
#: Before the other side has proved itself a line may be so long.
MAX_UNPROVEN_BYTES = 4096


def join_mismatch(who: str, protocol: object, oldest_reader: object) -> str:
    """Return why this process cannot be in one job with another; empty if it can.

    Args:
        who: names the other one.
        protocol: what it said; versions before there were numbers say nothing (None).
        oldest_reader: the oldest protocol that can read what it sends.
    """
    found = [0 if number is None else number for number in (protocol, oldest_reader)]
    for number in found:
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            return f"{who}: protocol: expected a number from 0, got {number!r}"
    first, second = (int(str(number)) for number in found)
    return mismatch(who, first, second, OLDEST)
