"""The library's own word on an offer: more processors have to be worth the move."""

from collections.abc import Sequence

from pliant.appkit.coordinator.messages import Measured, Offer
from pliant.core.support.plural import many
from pliant.core.values.speedup import speedup_of


def cost_benefit_objection(offer: Offer, remaining: int, measured: Sequence[Measured]) -> str:
    """Why an offer should be refused; empty: it should not.

    A growth has to gain more time in the iterations that are left of the loop than moving costs.
    Sizes that were never tried count as `speedup_of` has it. What gives processors back, what is
    mandatory, what an operator offers, what the user wants to take always (``--grow-if``) and what
    cannot be judged is not refused.

    Args:
        offer: with its estimated cost, in seconds.
        remaining: iterations of the present loop; 0: unknown.
        measured: how fast that loop was at the sizes that it has had.
    """
    seconds = {each.size: each.seconds_per_iteration for each in measured}
    now = seconds.get(offer.current)
    unjudged = offer.mandatory or offer.skip_gain_test
    if not offer.grows or unjudged or not remaining or now is None:
        return ""
    speedup = speedup_of(seconds)
    then = now * speedup(offer.current) / speedup(offer.proposed)
    gain, cost = remaining * (now - then), offer.estimated_cost_s
    if gain > cost:
        return ""
    return (
        f"the {remaining} iterations that are left would take {remaining * then:.3g} s on "
        f"{many(offer.proposed, 'processor')} instead of {remaining * now:.3g} s, "
        f"moving costs {cost:.3g} s"
    )
