"""Secrets that are recognized by their own form, whatever precedes them."""

from __future__ import annotations

import re

from hangscope.model.regex import regex
from hangscope.report.masking.key_names import is_mixed
from hangscope.report.masking.token_prefixes import KNOWN

# Each alternative starts with a literal and ends in one repeated class, so that one attempt looks at every character once.
_TOKEN = regex(
    "|".join(
        f"{re.escape(prefix)}{body}{{{least},}}"
        for prefixes, body, least in KNOWN
        for prefix in prefixes.split()
    )
)
# A token that a line wrap cuts in two or more.
_WRAPPED = regex(
    r"(?<![\w-])((?:eyJ|"
    + "|".join(re.escape(prefix) for prefixes, _, _ in KNOWN for prefix in prefixes.split())
    + r")[\w.-]{2,512}(?:\n[ \t]{0,8}[\w+/=.-]{20,512}(?=\n)){0,8}\n[ \t]{0,8})([\w+/=.-]{4,512})"
)
_FORMS = regex(
    r"(?<![A-Za-z0-9_-])(?:"
    r"(?:EAA[ACM]|cmVmd)(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{24,}|"  # Facebook, Square, Artifactory
    r"xapp-\d-[\w-]{10,}|"  # Slack
    r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{30,}|"  # Terraform
    r"SG\.[\w-]{16,}\.[\w-]{16,}|"  # SendGrid
    r"dt0c01\.[A-Z0-9]{20,}\.[A-Z0-9]{30,}|"  # Dynatrace
    r"\d{8,10}:AA[\w-]{30,}|"  # Telegram
    r"[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{25,}|"  # Discord
    r"pat[A-Za-z0-9]{14}\.[0-9a-f]{40,}|[ps]at\.[\w-]{22}\.\w{20,24}\.\w{16,}|t1\.[\w-]{20,256}\.[\w-]{60,}|"  # Airtable, Harness, Yandex
    r"[0-9a-f]{32}-us\d{1,2}(?!\w)|"  # Mailchimp
    r"[\w~.]{3}\dQ~[\w~.-]{30,}|"  # Microsoft Entra
    r"eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?|"  # JSON web token
    # PEM lines without their header
    r"(?:MII[A-Za-z0-9+/=]{60,}|b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=]{20,})(?:(?:\\n|\s{1,4})[A-Za-z0-9+/=]{40,})*(?:(?:\\n|\s{1,4})[A-Za-z0-9+/]{4,}={1,2})?)|"
    # password hashes: crypt, bcrypt, argon2, LDAP
    r"(?<![\w$])\$(?:[1567y]|2[abxy]|gy|apr1|scrypt|argon2i?d?|pbkdf2[\w-]{0,10})\$[\w./$=,+-]{20,}|\{S?SHA\d{0,3}\}[\w+/=]{20,}"
)
# A long run of base64, such as a storage key or a line of a private key.
_BLOB = regex(r"(?<![\w+/.$-])[A-Za-z0-9+/]{64,}={0,2}(?![\w-])")
# The secret that follows the ID of an AWS key.
_AFTER_ID = regex(
    r"((?:AKIA|ASIA)[A-Z0-9]{12,32}\W{1,8}(?:\w{1,40}\W{1,8}){0,3}?(?<![\w+]))([A-Za-z0-9+/]{40})(?![\w+/])"
)

# What precedes the secret stays.
_AFTER = regex(
    r"((?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|"
    r"webhook\.office\.com/webhookb2|chat\.googleapis\.com/v1/spaces|api\.telegram\.org/bot)/?)[\w/@?=&%.:+-]{10,}|"
    r"((?<![A-Za-z])(?i:bearer)\s{1,4})(?=[A-Za-z._~+/=-]{0,40}\d)[\w.~+/=-]{12,}|"
    r"((?<![\w-])sshpass\s{1,4}-p\s{0,4})\S{3,}|"
    r"((?<![\w-])login\s{1,4}\S{1,80}\s{1,4}password\s{1,4})\S+|"  # .netrc
    r"((?<![\w-])(?:login|mongo\w{0,8}) (?:\S{1,80} ){0,8}-p[ =]?(?!\d{1,5}(?!\w))|(?<![\w-])ldap\w{2,10} (?:\S{1,80} ){0,8}-w ?|"
    r"(?<![\w-])unzip (?:\S{1,80} ){0,4}-P ?|-pass(?:in|out)? pass:|(?<![\w-])lftp -u [\w.@-]{1,60},)\S{3,}|"
    r"((?:jdbc:oracle:\w{1,10}:|(?<![\w-])(?:sqlplus|sqlldr|expdp|impdp) (?:-\w{1,4} ){0,3})[\w.$-]{1,60}/)[^\s@]{3,200}(?=@)|"
    r"((?<![\w-])mysql\w{0,8} (?:\S{1,80} ){0,6}-p)\S{3,}|((?<![\w-])redis-cli (?:\S{1,80} ){0,6}-a )\S{3,}|"
    r"((?<![\w-])wandb login (?:--\S{1,80} ){0,4})[\w-]{20,}|"
    r"((?<![\w-])echo {1,4}(?:-n {1,4})?[\"']?)[^\s\"'|]{4,200}(?=[\"']? {0,4}\| {0,4}[^|\n]{0,80}--password-stdin)|"
    r"((?<![\w.+:/@-])[\w.+-]{2,40}:)(?=[^\s:@/\"']{0,40}\d)[^\s:@/\"'\d]{0,40}[^\s:@/\"']{6,80}(?=@[\w-]{1,60}\.[\w.-]{2,80})|"  # user:password@host
    r"((?<![\w-])(?:-u|--user|--proxy-user)[ =]{1,4}[\w.@+-]{1,80}:)(?!\d{1,8}\b)[^\s\"']{4,}"  # curl
)
_URL = regex(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{1,20})://([^/\s\"'<>?#]{1,512})@")
# A name before a host of these is an account, as in `ssh://git@host`.
_ACCOUNTS = ("ssh", "sftp", "scp", "rsync", "nfs", "smb", "hdfs", "afs", "ftp")
_BEGIN = regex(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")


def hide_tokens(text: str) -> str:
    """Return text with every secret that is recognized by its form replaced by `***`. Linear in the text's length."""
    if "AKIA" in text or "ASIA" in text:
        text = _AFTER_ID.sub(_without_last, text)
    if "\n" in text:
        text = _WRAPPED.sub(_without_wrapped, text)
    return _TOKEN.sub(_without_token, text)


def hide_blobs(text: str) -> str:
    """Return text without long runs of random base64."""
    return _BLOB.sub(lambda match: "***" if is_mixed(match.group()) else match.group(), text)


def hide_accounts(text: str) -> str:
    """Return text without the private keys, the accounts in URLs and the arguments of commands in it."""
    text = _URL.sub(_without_account, _hide_keys(text))
    text = _AFTER.sub(lambda match: "".join(part or "" for part in match.groups()) + "***", text)
    return _FORMS.sub("***", text)


def _without_token(match: re.Match[str]) -> str:
    """Within a word only what looks random is a token: `my_hf_XXXX`, not `task-0123`."""
    before = match.string[match.start() - 1 : match.start()]
    inside = before.isalnum() or before in ("_", "-")
    return "***" if not inside or match.group().isupper() or is_mixed(match.group()) else match.group()


def _without_wrapped(match: re.Match[str]) -> str:
    return "***" if is_mixed(match.group(2)) else match.group()


def _without_last(match: re.Match[str]) -> str:
    return match.group(1) + "***" if is_mixed(match.group(2)) else match.group()


def _hide_keys(text: str) -> str:
    """Hide private keys in PEM, whose end may be cut off."""
    parts, at = [], 0
    while begin := _BEGIN.search(text, at):
        parts += [text[at : begin.end()], "***"]
        end = text.find("-----END", begin.end())
        at = end if end >= 0 else len(text)
    return "".join([*parts, text[at:]]) if parts else text


def _without_account(match: re.Match[str]) -> str:
    scheme, account = match.groups()
    if ":" not in account and scheme.rpartition("+")[2] in _ACCOUNTS:
        return match.group()
    return f"{scheme}://***@"
