"""How an application answers an offer."""

from collections.abc import Callable

from pliant.appkit.messages import Answer, Offer
from pliant.core.negotiation import Verb
from pliant.core.sizes import Sizes

#: The program's own word on an offer: True or None (the library decides), False (refuse), or the
#: total it would rather have. Runs in the session's thread: no MPI, no arrays.
OnOffer = Callable[[Offer], bool | int | None]


def decide(offer: Offer, sizes: Sizes | None, on_offer: OnOffer | None = None) -> Answer:
    """Accept what is within the program's sizes, unless ``on_offer`` says otherwise."""
    if offer.proposed < 1:
        return Answer(Verb.REJECT, f"{offer.proposed} processors are too few")
    if sizes is not None and offer.proposed not in sizes:
        return Answer(Verb.REJECT, f"{offer.proposed} is not one of the program's sizes {sizes}")
    if offer.proposed == offer.current:
        return Answer(Verb.REJECT, f"the application has {offer.current} processors already")
    wish = on_offer(offer) if on_offer is not None else True
    if wish is None or wish is True or wish == offer.proposed:
        return Answer(Verb.ACCEPT)
    if wish is False:
        return Answer(Verb.REJECT, "the program refused")
    if offer.final or (sizes is not None and wish not in sizes):
        return Answer(Verb.REJECT, f"the program wants {wish} processors")
    return Answer(Verb.COUNTER, size=wish)
