"""Check what a submitted job needs of the cluster: sizes, named resources and nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pliant.core.model.views_and_plans import NodeView
from pliant.core.state.node_resources import impossible
from pliant.core.support.plural import plural
from pliant.core.values.node_needs import (
    MAX_GRES,
    MAX_MEMORY,
    MEMORY,
    NodeNeeds,
    is_gres_name,
)
from pliant.core.values.node_property_constraint import Constraint
from pliant.core.values.node_ranges import parse_node_ranges
from pliant.core.values.resources import Need, parse_needs
from pliant.core.values.resources import impossible as resources_impossible
from pliant.core.values.sizes import Sizes, SizesError, parse_sizes
from pliant.server.support.user_request_error import UserRequestError

if TYPE_CHECKING:  # which imports this module
    from pliant.server.user_requests.submission.submission_schema import JobRequest

#: Maximum number of named resources that one job may need.
MAX_RESOURCES = 16
#: Maximum length of a list of nodes, in characters.
MAX_NODE_LIST = 4096


def check_resources(
    request: JobRequest, sizes: Sizes, amounts: Mapping[str, int]
) -> tuple[Need, ...]:
    """Return how much a job needs of each named resource of the cluster, such as licenses.

    Args:
        request: the submission.
        sizes: the sizes that the job may have.
        amounts: the amount of each resource in the cluster.

    Raises:
        UserRequestError: a need is not valid, or can never be satisfied.
    """
    if len(request.resources) > MAX_RESOURCES:
        raise UserRequestError(f"resource: at most {MAX_RESOURCES} can be named", field="resources")
    try:
        needs = parse_needs(request.resources)
    except ValueError as error:
        raise UserRequestError(f"resource: {error}", field="resources") from None
    if wrong := resources_impossible(needs, sizes.min, amounts):
        raise UserRequestError(f"resource: {wrong}", kind="refused", field="resources")
    return needs


def check_node_needs(
    request: JobRequest, least: int, nodes: Callable[[], list[NodeView]]
) -> NodeNeeds | None:
    """Return what a job demands of each of its nodes; None if it demands nothing.

    It can demand memory, devices and features, and name the nodes to use or to exclude.

    Args:
        request: the submission.
        least: the smallest size of the job.
        nodes: returns the nodes of the cluster.

    Raises:
        UserRequestError: a demand is not valid, or the cluster can never meet it.
    """
    if len(request.gres) > MAX_RESOURCES:
        raise UserRequestError(f"gres: at most {MAX_RESOURCES} can be named", field="gres")
    for name, amount in request.gres.items():
        if not is_gres_name(name) or not 1 <= amount <= MAX_GRES:
            raise UserRequestError(
                f"gres: {name!r:.40}: expected a name and 1 to {MAX_GRES}", field="gres"
            )
    if not 0 <= request.memory_bytes <= MAX_MEMORY:
        raise UserRequestError(f"memory_bytes: expected 0 to {MAX_MEMORY}", field="memory_bytes")
    for field in ("nodelist", "exclude"):
        _check_node_list(field, getattr(request, field))
    amounts = {**request.gres, MEMORY: request.memory_bytes}
    try:
        constraint = Constraint(request.constraint) if request.constraint else None
    except ValueError as error:
        raise UserRequestError(f"constraint: {error}", field="constraint") from None
    needs = NodeNeeds(
        tuple(sorted((name, amount) for name, amount in amounts.items() if amount)),
        constraint,
        request.nodelist,
        request.exclude,
    )
    if needs and (why := impossible(nodes(), needs, least)):
        raise UserRequestError(why, kind="refused", field="node_needs")
    return needs or None


def _check_node_list(field: str, text: str) -> None:
    """Check the syntax of a list of nodes such as ``n[1-4],n7``; it may be empty.

    Args:
        field: the field of the request that has the list, for the error.
        text: the list.

    Raises:
        UserRequestError: the list is malformed or too long.
    """
    try:
        if len(text) > MAX_NODE_LIST:
            raise ValueError(f"longer than {MAX_NODE_LIST} characters")
        if text:
            parse_node_ranges(text)
    except ValueError as error:
        raise UserRequestError(f"{field}: {error}", field=field) from None


def check_sizes(request: JobRequest, processors: int) -> Sizes:
    """Return the sizes of a job for a cluster with this number of processors.

    Raises:
        UserRequestError: the sizes are not valid, or even the smallest is too large.
    """
    try:
        sizes = parse_sizes(request.sizes)
    except SizesError as error:
        raise UserRequestError(str(error), field="sizes") from None
    if request.prefer is not None:
        try:
            sizes = sizes.prefer(request.prefer)
        except SizesError as error:
            raise UserRequestError(str(error), field="prefer") from None
    if request.type == "uni" and (sizes.min, sizes.max) != (1, 1):
        raise UserRequestError(f"sizes {sizes}: a job of type uni has one processor", field="sizes")
    if not processors:
        raise UserRequestError("no node has registered yet: try again later", kind="unavailable")
    if sizes.min > processors:
        raise UserRequestError(
            f"sizes {sizes} can never be satisfied: the cluster has "
            f"{plural(processors, 'processor')}",
            kind="refused",
            field="sizes",
        )
    return sizes
