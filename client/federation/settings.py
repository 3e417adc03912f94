"""The settings of a federation: which sites it has, and how many processors it may claim there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from pliant.client.client_errors import UsageError
from pliant.client.paths import run_dir, state_dir
from pliant.protos.daemons.config_files import ConfigFileError, read_config

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class SiteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings for a site: a Pliant server whose processors the federation may claim."""

    #: Folder with the users' socket of the site's server, or of a login agent for it.
    run_dir: str
    #: The federation has at most this many stubs here.
    max_stubs: int
    #: Growth leaves this many processors of the site idle.
    threshold: int = 0
    #: Python interpreter with Pliant on the nodes of the site.
    python: str = sys.executable
    #: Network interface of MPI messages on the nodes of the site; empty: that of the controllers.
    interface: str = ""
    #: Folder on the nodes in which each stub makes its own; empty: that of temporary files.
    node_dir: str = ""
    #: Folder for the output of the stubs, which the nodes of the site can write; empty: none.
    log_dir: str = ""


class FederationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of the federation, which are also the keys of its configuration file."""

    sites: dict[str, SiteSettings]
    #: Part of the names of stubs, so that several federations can use the same site.
    name: str = "grid"
    #: Folders of the grid server.
    run_dir: str = msgspec.field(default_factory=run_dir)
    state_dir: str = msgspec.field(default_factory=state_dir)
    #: Address of the grid server's host for stubs that join with tokens; empty: where it listens.
    address: str = ""
    #: Whether jobs grow at all sites, or only at those where they run.
    growth: Literal["any-site", "same-site"] = "any-site"
    #: Seconds between two requests to the sites.
    poll_s: float = 10.0
    #: The stubs of a claim have this long to register; otherwise all of them are given back.
    start_timeout_s: float = 60.0
    #: A stub that no job has used for this long is given back.
    idle_s: float = 30.0
    #: A job that did not use the stubs of a growth gets no others for this long.
    retry_s: float = 300.0
    #: Time limit of a stub as a job of its site.
    lifetime_s: float = 86400.0
    #: Jobs leave a stub this long before its time limit.
    leave_before_s: float = 120.0
    #: A stub ends if the grid server cannot be reached for this long.
    orphan_s: float = 60.0


#: Keys whose values are times above 0, in seconds.
_TIMES = (
    *("poll_s", "start_timeout_s", "idle_s", "retry_s"),
    *("lifetime_s", "leave_before_s", "orphan_s"),
)
_MAX_S = 1e9
#: Most stubs at a site: each is a node of the grid server.
MAX_STUBS = 10_000


def load_settings(path: str) -> FederationSettings:
    """Read the configuration file of a federation.

    Raises:
        UsageError: the file cannot be read, or a value is wrong; names the key and the remedy.
    """
    try:
        settings = msgspec.convert(read_config(path), FederationSettings)
    except (ConfigFileError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {str(error).replace('`', '')}") from None
    for fault in _find_faults(settings):
        raise UsageError(f"{path}: {fault}")
    return settings


def _find_faults(settings: FederationSettings) -> Iterator[str]:
    """Yield a message for each value out of bounds. The types have been checked before."""
    if not settings.sites:
        yield "sites: name at least one site"
    for name in (settings.name, *settings.sites):
        if not _NAME.fullmatch(name):
            yield f"name {name!r}: write up to 32 letters, digits, '_' and '-'"
    for name, site in settings.sites.items():
        if not 1 <= site.max_stubs <= MAX_STUBS:
            yield f"sites.{name}.max_stubs: expected 1 to {MAX_STUBS}, got {site.max_stubs}"
        if site.threshold < 0:
            yield f"sites.{name}.threshold: expected 0 or more, got {site.threshold}"
        if not os.path.isabs(site.run_dir):
            yield f"sites.{name}.run_dir: {site.run_dir}: expected an absolute path"
        if Path(site.run_dir).resolve() == Path(settings.run_dir).resolve():
            yield f"sites.{name}.run_dir: {site.run_dir} is that of the grid server itself"
    for key in _TIMES:
        if not 0 < getattr(settings, key) < _MAX_S:
            yield f"{key}: expected more than 0 s, got {getattr(settings, key):g}"
    if settings.leave_before_s >= settings.lifetime_s:
        yield f"leave_before_s: expected less than lifetime_s ({settings.lifetime_s:g})"
