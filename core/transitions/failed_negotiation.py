"""Close a negotiation that has failed, and do what the policy says if the offer was mandatory."""

from pliant.core.model.jobs import Job
from pliant.core.model.lifecycle import JobState
from pliant.core.model.resize import Resize
from pliant.core.model.views_and_plans import Outcome
from pliant.core.state.core_state import CoreState
from pliant.core.transitions import job_end, resize_open_close, suspension_steps
from pliant.core.values.negotiation_policy import Escalation


def close(state: CoreState, job: Job, resize: Resize, why: str, *, tell: bool = True) -> None:
    """Close a failed negotiation; with ``tell``, the strategy gets the failure in its next view."""
    if tell and not job.size_fixed_by_operator:
        state.outcomes.append(Outcome(job.id, job.size, False))
    resize_open_close.close(state, job, why, quiet=True)
    if resize.mandatory:
        _escalate(state, job, why)


def _escalate(state: CoreState, job: Job, why: str) -> None:
    escalation = state.policy.escalation
    text = f"a mandatory offer failed ({why})"
    state.note("offer.escalated", f"{text}: {escalation}", job, escalation=escalation.value)
    if escalation is Escalation.REQUEUE:
        suspension_steps.order_suspension(state, job, text, requeues=True)
    elif escalation is Escalation.TERMINATE:
        job_end.end(state, job, JobState.FAILED, text)
