"""How an application answers an offer."""

import operator
from collections.abc import Callable

from pliant.appkit.messages import Answer, Offer
from pliant.core.negotiation import Verb
from pliant.core.sizes import Sizes

#: The program's own word on an offer: True or None (the library decides), False (refuse), or the
#: total it would rather have. Runs in the session's thread: no MPI, no arrays.
OnOffer = Callable[[Offer], bool | int | None]


def decide(offer: Offer, sizes: Sizes | None, on_offer: OnOffer | None = None) -> Answer:
    """Accept what is within the program's sizes, unless ``on_offer`` says otherwise.

    Raises:
        Exception: whatever ``on_offer`` raises; TypeError where its word is no number.
    """
    if offer.proposed < 1:
        return Answer(Verb.REJECT, f"{offer.proposed} processors are too few")
    if sizes is not None and offer.proposed not in sizes:
        return Answer(Verb.REJECT, f"{offer.proposed} is not one of the program's sizes {sizes}")
    if offer.proposed == offer.current:
        return Answer(Verb.REJECT, f"the application has {offer.current} processors already")
    wish = on_offer(offer) if on_offer is not None else True
    if wish is None or wish is True:
        return Answer(Verb.ACCEPT)
    if wish is False:
        return Answer(Verb.REJECT, "the program refused")
    return _wished(offer, sizes, operator.index(wish))


def _wished(offer: Offer, sizes: Sizes | None, size: int) -> Answer:
    """The answer of a program that names a total."""
    if size == offer.proposed:
        return Answer(Verb.ACCEPT)
    impossible = size < 1 or size == offer.current or (sizes is not None and size not in sizes)
    if offer.final or impossible:
        return Answer(Verb.REJECT, f"the program wants {size} processors")
    return Answer(Verb.COUNTER, size=size)
