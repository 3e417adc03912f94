"""Rules on where the server may send messages about jobs: the configuration key ``notify``.

Users name the receiver of their messages. The server sends only to hosts and mail domains that the
administrator has listed, so nobody can use it to reach other services of its network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

#: The events of a job that a message can be sent for.
EVENTS = ("start", "end", "fail", "resize", "limit")
#: The events for which a job sends messages if its user names none.
DEFAULT_EVENTS = ("end", "fail")
#: Written among the events: an array sends messages for each of its tasks, not for itself.
TASKS = "tasks"
#: Longest receiver, in characters.
MAX_RECEIVER = 1024

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\]")
_MAIL = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,63}@([A-Za-z0-9][A-Za-z0-9.-]{0,251}[A-Za-z0-9])"
)
_URL = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where a message goes: to a mail address, or to a web service."""

    #: ``mail``, ``http`` or ``https``.
    scheme: str
    #: The mail address, or the URL.
    text: str
    #: The domain of the address, or the host of the URL, in small letters.
    host: str
    #: The port of the web service; 0 for mail.
    port: int = 0
    #: Path and query of the URL.
    path: str = ""

    @property
    def place(self) -> str:
        """Return which server delivers to this receiver: ``mail``, or a web server's HOST:PORT."""
        return "mail" if self.scheme == "mail" else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NotifyRules:
    """To whom the server may send messages about jobs: the key ``notify`` of the configuration.

    By default, it may send messages to nobody.
    """

    #: Host and port of each web service that may be told.
    services: frozenset[tuple[str, int]] = frozenset()
    #: Host, for its standard ports 80 and 443.
    hosts: frozenset[str] = frozenset()
    #: Domains of mail addresses.
    mail_domains: frozenset[str] = frozenset()
    #: Host and port of the mail server; None if no mail is sent.
    smtp: tuple[str, int] | None = None
    #: The sender of mails.
    sender: str = ""

    @property
    def is_enabled(self) -> bool:
        """Return whether messages can be sent at all."""
        return bool(self.services or self.hosts or self.mail_domains)

    def refusal(self, receiver: Receiver) -> str:
        """Return why no message is sent to a receiver; empty if messages are sent."""
        if receiver.scheme == "mail":
            if receiver.host in self.mail_domains:
                return ""
            return f"the server sends no mail to {receiver.host} (`notify.mail_domains`)"
        if (receiver.host, receiver.port) in self.services:
            return ""
        if receiver.host in self.hosts and receiver.port == _PORTS[receiver.scheme]:
            return ""
        return f"the server sends nothing to {receiver.place} (`notify.hosts`)"


def parse_receiver(text: str) -> Receiver:
    """Parse a mail address or the URL of a web service.

    Raises:
        ValueError: the text is neither, or has forbidden parts, such as a password.
    """
    if len(text) > MAX_RECEIVER:
        raise ValueError(f"longer than {MAX_RECEIVER} characters")
    if match := _MAIL.fullmatch(text):
        return Receiver("mail", text, match[1].lower())
    expected = "expected a mail address, or a URL such as https://host/path"
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise ValueError(f"{expected}, got {text!r:.80}") from None
    if url.scheme not in _PORTS or not url.hostname or not _URL.fullmatch(text):
        raise ValueError(f"{expected}, got {text!r:.80}")
    if "@" in url.netloc or url.fragment:
        raise ValueError("a URL with a user, a password or a fragment is not accepted")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    if not _HOST.fullmatch(host) or port == 0:
        raise ValueError(f"{expected}, got {text!r:.80}")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    return Receiver(url.scheme, text, host, port or _PORTS[url.scheme], path)


def parse_events(text: str) -> tuple[str, ...]:
    """Parse the events that a user wants messages about, such as ``end,fail`` or ``all``.

    Returns:
        The events. ``tasks`` comes last if it is in the text: each task of an array sends messages.

    Raises:
        ValueError: an event is unknown.
    """
    words = [word.strip() for word in text.split(",")] if text else []
    of_tasks = (TASKS,) if TASKS in words else ()
    words = [word for word in words if word != TASKS] or [*DEFAULT_EVENTS]
    if words == ["all"]:
        return EVENTS + of_tasks
    for word in words:
        if word not in EVENTS:
            raise ValueError(
                f"{word!r:.40} is no event; known: {', '.join(EVENTS)}, all, and {TASKS} for each "
                "task of an array"
            )
    return tuple(event for event in EVENTS if event in words) + of_tasks


def parse_notify_rules(settings: Mapping[str, object]) -> NotifyRules:
    """Parse the value of the configuration key ``notify``.

    Raises:
        ValueError: a value is wrong. The message begins with its key.
    """
    known = ("hosts", "mail_domains", "smtp", "sender")
    for key in settings:
        if key not in known:
            raise ValueError(f"{key}: unknown key; known: {', '.join(known)}")
    services, hosts = set(), set()
    for text in _texts(settings, "hosts"):
        host, port = _host_and_port(text, "hosts", 0)
        if port:
            services.add((host, port))
        else:
            hosts.add(host)
    domains = frozenset(_texts(settings, "mail_domains"))
    for domain in domains:
        if not _HOST.fullmatch(domain):
            raise ValueError(f"mail_domains: {domain!r:.80} is no domain")
    smtp, sender = (_text(settings, key) for key in ("smtp", "sender"))
    if domains and not (smtp and sender):
        raise ValueError("mail_domains: mail also needs `smtp` (HOST:PORT) and `sender`")
    if sender and not _MAIL.fullmatch(sender):
        raise ValueError(f"sender: {sender!r:.80} is no mail address")
    server = _host_and_port(smtp.lower(), "smtp", 25) if smtp else None
    return NotifyRules(frozenset(services), frozenset(hosts), domains, server, sender)


def _host_and_port(text: str, key: str, default: int) -> tuple[str, int]:
    """Return host and port of the text ``HOST`` or ``HOST:PORT``.

    Without a port in the text, ``default`` is returned. ``key`` is named in error messages.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, ""
    is_port = not port or (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16)
    if not _HOST.fullmatch(host) or not is_port or (colon and text.endswith(":")):
        raise ValueError(f"{key}: expected HOST or HOST:PORT, got {text!r:.80}")
    return host, int(port) if port else default


def _texts(settings: Mapping[str, object], key: str) -> list[str]:
    """Return the list of texts under a key of the settings, in lower case."""
    values = settings.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key}: expected a list of names, got {values!r:.80}")
    return [value.lower() for value in values]


def _text(settings: Mapping[str, object], key: str) -> str:
    value = settings.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected a text, got {value!r:.80}")
    return value
