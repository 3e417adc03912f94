"""Receivers, events and the configuration key ``notify``: what is allowed, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from pliant.server.config import ConfigError, check_config
from pliant.server.support.notify_rules import (
    EVENTS,
    NotifyRules,
    parse_events,
    parse_notify_rules,
    parse_receiver,
)

RULES = parse_notify_rules(
    {
        "hosts": ["Hooks.example.org", "127.0.0.1:8080", "[::1]:8081"],
        "mail_domains": ["example.org"],
        "smtp": "mail.example.org",
        "sender": "pliant@example.org",
    }
)


@pytest.mark.parametrize(
    "text",
    [
        "https://hooks.example.org/x?y=1",
        "http://HOOKS.example.org",
        "http://127.0.0.1:8080/",
        "http://[::1]:8081/a",
        "ann.lee+jobs@Example.org",
    ],
)
def test_listed_receivers_are_told(text: str) -> None:
    assert RULES.refusal(parse_receiver(text)) == ""
    assert "notify." in NotifyRules().refusal(parse_receiver(text))


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1/",  # another port
        "http://hooks.example.org:8080/",
        "https://hooks.example.org:80/",
        "http://169.254.169.254/latest",
        "http://hooks.example.org.evil.net/",
        "ann@evil.net",
        "ann@sub.example.org",
    ],
)
def test_others_are_not(text: str) -> None:
    assert "the server sends n" in RULES.refusal(parse_receiver(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ann",
        "-oQ/tmp@example.org",
        "ann@example.org\nBcc: bob@example.org",
        "ann@example.org,bob@example.org",
        "file:///etc/passwd",
        "gopher://hooks.example.org/",
        "http://",
        "http://hooks.example.org:99999/",
        "http://hooks.example.org:0/",
        "http://ann:secret@hooks.example.org/",
        "http://hooks.example.org@evil.net/",
        "http://hooks.example.org/#x",
        "http://hooks.example.org/a b",
        "http://hooks.example.org/\r\nHost: evil.net",
        "http://hooks.example.org/ä",
        "http://hooks.example.org/" + "x" * 1024,
    ],
)
def test_malformed_receivers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a mail address|not accepted|longer than"):
        parse_receiver(text)


def test_events() -> None:
    assert parse_events("") == ("end", "fail")
    assert parse_events("fail, start") == ("start", "fail")
    assert parse_events("all") == EVENTS
    assert parse_events("tasks") == ("end", "fail", "tasks")
    assert parse_events("tasks,all") == (*EVENTS, "tasks")
    with pytest.raises(ValueError, match="'begin' is no event; known: start, end"):
        parse_events("end,begin")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"host": []}, "host: unknown key"),
        ({"hosts": "a"}, "hosts: expected a list"),
        ({"hosts": ["http://a"]}, "hosts: expected HOST"),
        ({"hosts": ["a:"]}, "hosts: expected HOST"),
        ({"hosts": ["*"]}, "hosts: expected HOST"),
        ({"mail_domains": ["a b"]}, "mail_domains: 'a b' is no domain"),
        ({"mail_domains": ["a.org"]}, "mail_domains: mail also needs"),
        ({"smtp": "mail:x"}, "smtp: expected HOST"),
        ({"smtp": 25}, "smtp: expected a text"),
        ({"sender": "me"}, "sender: 'me' is no mail address"),
    ],
)
def test_errors_of_the_configuration_name_the_key(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_config({"notify": settings})
    assert str(refused.value).startswith(f"notify.{key}")
