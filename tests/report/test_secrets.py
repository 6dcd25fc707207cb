"""Secrets never leave in any output, what only looks like one stays, and masking takes time in proportion to the text."""

from __future__ import annotations

import time

import pytest

from hangscope.codec import to_plain
from hangscope.report.masking.secrets import mask_text
from hangscope.report.masking.walk import change_texts, texts_in
from tests.report.samples import document
from tests.report.secret_shapes import HARMLESS, SECRETS, expand

LEAST = 6  # characters of a secret in a row that may not be left


def left_of(secret: str, text: str) -> str:
    """Return a part of a secret that is left in a text."""
    least = min(LEAST, len(secret))
    parts = (secret[at : at + least] for at in range(len(secret) - least + 1))
    return next((part for part in parts if part in text), "")


@pytest.mark.parametrize("shape", SECRETS)
@pytest.mark.parametrize("around", ["{}", "[rank3]: 2024-05-01 12:00:00 env: {} and more", '"{}"'])
def test_a_secret_is_masked(shape: str, around: str) -> None:
    line, secrets = expand(shape)
    text = around.format(line)
    masked = mask_text(text)
    assert secrets and "***" in masked
    assert [left_of(secret, masked) for secret in secrets if left_of(secret, masked)] == []
    assert mask_text(masked) == masked


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert mask_text(text) == text


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(set(SECRETS)) >= 150 and len(set(HARMLESS)) >= 150


def test_what_stands_around_a_secret_stays() -> None:
    assert mask_text("host=db password=abcdef7 port=1") == "host=db password=*** port=1"
    assert mask_text("https://me:abcdef7@db/x?a=1") == "https://***@db/x?a=1"
    assert mask_text("f(password='a b c', n=1)") == "f(password='***', n=1)"
    assert mask_text("banana_password=banana") == "banana_password=***"


def test_every_string_of_the_data_is_masked() -> None:
    data = {"a": ["password=abcdef7", 1, None], "b": {"c": ["token", "HF_TOKEN=abcdef7"]}}
    assert change_texts(data, mask_text) == {
        "a": ["password=***", 1, None],
        "b": {"c": ["token", "HF_TOKEN=***"]},
    }


@pytest.mark.parametrize("name", ["hang_8", "no_hang", "hostile", "stacks_1024"])
def test_no_field_of_a_report_is_missed(name: str) -> None:
    """The report as plain data, which another function makes, holds no text that did not go through."""
    changed = to_plain(change_texts(document(name), lambda text: "x"))
    assert set(texts_in(changed)) == {"x"}


GROWING = (
    "token -1", "-1", "key=", "key='", 'key="\\"', "password=$(", "password", "password=", "a.", "a-", "\\", "=\\", "token:\\",
    "eyJ", "eyJaaaaaaaaaaa.", "://", "a://b", "a://b@", "-----BEGIN PRIVATE KEY-----", "sk-", "SG.aaaaaaaaaaaaaaaaaaaa.", "ya29.",
    "login a password ", "-u a:", "--token ", "name: DB_PASSWORD, ", "key=aaaa,", "token=a1,", "hooks.slack.com/", "Cookie: ",
    "Authorization: digest ", "key,'", "aaa8Q~", "12345678:AA", "api_", "key:|  ", "key>", "<key>", "password=[", "token={{", "%5F", "\u200b", "&quot;", "\\u0022", "\x1b[", "%25", "password for a",
    "password for a: ", "password '",
)  # fmt: skip


@pytest.mark.parametrize("part", GROWING)
@pytest.mark.parametrize("ends", ["", "'", " x"])
def test_masking_is_linear(part: str, ends: str) -> None:
    """What is quadratic would take half a minute."""
    for before in ("", "password='"):
        text = before + part * (50_000 // len(part)) + ends
        began = time.process_time()
        mask_text(text)
        assert time.process_time() - began < 2
