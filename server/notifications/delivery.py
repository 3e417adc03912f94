"""Deliver one message: a POST request to a web service, or a mail. No call takes long."""

from __future__ import annotations

import http.client
import json
import smtplib
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from typing import Any

from pliant.server.notifications.messages import subject
from pliant.server.support.notify_rules import NotifyRules, Receiver

#: Seconds for one step of a connection, and for a whole delivery.
STEP_S, TOTAL_S = 5.0, 15.0
#: Answers of a web service after which another attempt makes sense, besides those from 500.
_BUSY = (408, 425, 429)


class DeliveryError(Exception):
    """A message was not delivered."""

    def __init__(self, text: str, *, may_repeat: bool) -> None:
        super().__init__(text)
        #: Whether another attempt makes sense.
        self.may_repeat = may_repeat


def deliver(receiver: Receiver, message: Mapping[str, Any], rules: NotifyRules) -> None:
    """Deliver a message, unless the rules do not allow its receiver any more.

    Raises:
        DeliveryError: the message was not delivered.
    """
    if refusal := rules.refusal(receiver):  # the configuration may have changed
        raise DeliveryError(refusal, may_repeat=False)
    try:
        if receiver.scheme == "mail":
            _send_mail(receiver, message, rules)
        else:
            _post(receiver, message)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        text = f"the mail server refused the address, code {codes[0]}"
        raise DeliveryError(text, may_repeat=codes[0] < 500) from None
    except smtplib.SMTPResponseException as error:
        text = f"the mail server answered {error.smtp_code}"
        raise DeliveryError(text, may_repeat=error.smtp_code < 500) from None
    except (OSError, http.client.HTTPException, smtplib.SMTPException) as error:
        raise DeliveryError(f"{type(error).__name__}: {error}"[:200], may_repeat=True) from None


def _post(receiver: Receiver, message: Mapping[str, Any]) -> None:
    """Send a message as JSON. A redirection is not followed: it could lead to any host."""
    host = receiver.host.strip("[]")
    connection: http.client.HTTPConnection
    if receiver.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            host, receiver.port, timeout=STEP_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, receiver.port, timeout=STEP_S)
    try:
        connection.connect()
        with _limited(connection.sock):
            connection.request(
                "POST",
                receiver.path,
                body=json.dumps(message).encode("ascii"),
                headers={"Content-Type": "application/json", "User-Agent": "pliant"},
            )
            status = connection.getresponse().status
    finally:
        connection.close()
    if not 200 <= status < 300:
        may_repeat = status >= 500 or status in _BUSY
        raise DeliveryError(f"the web service answered {status}", may_repeat=may_repeat)


def _send_mail(receiver: Receiver, message: Mapping[str, Any], rules: NotifyRules) -> None:
    assert rules.smtp is not None, rules
    mail = EmailMessage()
    mail["From"], mail["To"] = rules.sender, receiver.text
    mail["Subject"] = subject(message)
    mail["Message-ID"] = f"<{message['id']}@{rules.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content("".join(f"{name}: {value}\n" for name, value in message.items()))
    host, port = rules.smtp
    smtp = smtplib.SMTP(host.strip("[]"), port, local_hostname="localhost", timeout=STEP_S)
    try:
        assert smtp.sock is not None
        with _limited(smtp.sock):
            smtp.send_message(mail)
            with suppress(OSError, smtplib.SMTPException):  # the mail was accepted
                smtp.quit()
    finally:
        smtp.close()


@contextmanager
def _limited(sock: socket.socket) -> Iterator[None]:
    """Within this context, close the connection after `TOTAL_S` seconds, even during a transfer."""

    def end() -> None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed

    timer = threading.Timer(TOTAL_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
