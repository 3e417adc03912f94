"""Bring the loopback interface of this network namespace up, where ``ip`` is not installed."""

import fcntl
import socket
import struct

GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    request = struct.pack("16sH14s", b"lo", 0, b"")
    flags = struct.unpack("16sH14s", fcntl.ioctl(control, GET_FLAGS, request))[1]
    fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH14s", b"lo", flags | UP, b""))
