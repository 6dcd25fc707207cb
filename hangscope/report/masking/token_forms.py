"""Secrets that are recognized by their own form, whatever precedes them."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error

from hangscope.model.regex import regex
from hangscope.report.masking.key_names import is_mixed, is_placeholder
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
# What everybody may read, and what names a request or a checksum.
_PUBLIC = r"(?P<public>-----BEGIN (?:TRUSTED |X509 )?(?:CERTIFICATE|CRL|CERTIFICATE REQUEST|(?:RSA |EC )?PUBLIC KEY)-----[A-Za-z0-9+/=\s\\]{0,16384})|"
_FORMS = regex(
    _PUBLIC + r"(?<![A-Za-z0-9_-])(?:"
    r"(?:EAA[ACM]|cmVmd)(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{24,}|"  # Facebook, Square, Artifactory
    r"xapp-\d-[\w-]{10,}|"  # Slack
    r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{30,}|"  # Terraform
    r"SG\.[\w-]{16,}\.[\w-]{16,}|"  # SendGrid
    r"dt0c01\.[A-Z0-9]{20,}\.[A-Z0-9]{30,}|"  # Dynatrace
    r"(?:bot)?\d{8,10}:A[A-Za-z][\w-]{30,}|"  # Telegram
    r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk|pat-(?:na|eu)\d-[0-9a-f-]{30,}|K10[0-9a-f]{40,}::[\w:]{8,}|"  # MaxMind, HubSpot, k3s
    r"(?=[a-z]{0,5}\d)[a-z0-9]{6}\.(?=[a-z]{0,15}\d)[a-z0-9]{16}(?![\w.])|"  # kubeadm
    r"(?<!\.)s\.(?=[A-Za-z]{0,24}\d)[A-Za-z0-9]{24}(?![\w.])|sl\.[\w-]{100,}|[sp]k\.eyJ[\w-]{20,}\.[\w-]{10,}|"  # Vault, Dropbox, Mapbox
    r"[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{25,}|"  # Discord
    r"pat[A-Za-z0-9]{14}\.[0-9a-f]{40,}|[ps]at\.[\w-]{22}\.\w{20,24}\.\w{16,}|t1\.[\w-]{20,256}\.[\w-]{60,}|"  # Airtable, Harness, Yandex
    r"[0-9a-f]{32}-us\d{1,2}(?!\w)|"  # Mailchimp
    r"[\w~.]{3}\dQ~[\w~.-]{30,}|"  # Microsoft Entra
    r"eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?|"  # JSON web token
    # PEM lines without their header
    r"(?:MII[A-Za-z0-9+/=]{60,}|b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=]{20,})(?:(?:\\n|\s{1,4})[A-Za-z0-9+/=]{40,})*(?:(?:\\n|\s{1,4})[A-Za-z0-9+/]{4,}={1,2})?)|"
    # password hashes: crypt, bcrypt, argon2, LDAP
    r"md5[0-9a-f]{32}(?!\w)|SCRAM-SHA-\d{1,3}\$\d{1,8}:[\w+/=$:]{20,}|[\w.-]{1,60}-\d:[A-Za-z0-9+/]{86}==|"  # PostgreSQL, Nix
    r"(?<![\w$])\$(?:[1567y]|2[abxy]|gy|apr1|scrypt|argon2i?d?|pbkdf2[\w-]{0,10})\$[\w./$=,+-]{20,}|\{S?SHA\d{0,3}\}[\w+/=]{20,}|\{(?:PLAIN|CLEAR|CLEARTEXT)\}[^\s:\"']{4,100}"
)
# A long run of base64, such as a storage key or a line of a private key.
_BLOB = regex(
    _PUBLIC
    + r"(?P<id>(?i:x-[a-z-]{1,40}-(?:id|hash)(?:-\d)?|etag|content-md5|digest|integrity)[\"']{0,2}\s{0,2}[:=]\s{0,2}[\"']?[\w+/=-]{1,512})|"
    r"(?<![\w+/.$-])[A-Za-z0-9+/]{64,}={0,2}(?:(?:\\n|\s{1,4})[A-Za-z0-9+/]{64,}={0,2})*(?:(?:\\n|\s{1,4})[A-Za-z0-9+/]{4,63}={1,2})?(?![\w-])"
)
# The secret that follows the ID of a key: of AWS and what imitates it, Twilio, Alibaba, Modal, Scaleway.
_AFTER_ID = regex(
    r"((?:AKIA|ASIA)[A-Z0-9]{12,32}\W{1,8}(?:\w{1,40}\W{1,8}){0,3}?(?<![\w+]))([A-Za-z0-9+/]{40})(?![\w+/])|"
    r"((?<![\w+/])(?=[A-Z]{0,23}\d)[A-Z0-9]{16,24}\W{1,8}(?<![\w+]))([A-Za-z0-9+/]{32,64})(?![\w+/])|"
    r"((?<!\w)(?:AC|SK)[0-9a-f]{32}\W{1,8}(?:\w{1,40}\W{1,8}){0,2}?)([0-9a-f]{32})(?!\w)|"
    r"((?<!\w)(?:LTAI\w{12,26}|ak-\w{20,24}|SCW[A-Z0-9]{17})\W{1,8}(?:\w{1,40}\W{1,8}){0,3}?)((?:as-)?(?=[A-Za-z-]{0,40}\d)[\w-]{20,40})(?!\w)"
)

_SHORTEST_PAIR = 37  # characters of an ID and its secret

# What precedes the secret stays.
_AFTER = regex(
    r"((?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|"
    r"webhook\.office\.com/webhookb2|chat\.googleapis\.com/v1/spaces|open\.(?:feishu|larksuite)\.c\w{1,2}/open-apis/bot/v2/hook|maker\.ifttt\.com/trigger/\w{1,60}/with/key|"
    r"events\.pagerduty\.com/integration|hc-ping\.com|api\.telegram\.org/bot)/?)[\w/@?=&%.:+-]{10,}|"
    r"((?<![A-Za-z])(?i:bearer)\s{1,4})(?=[A-Za-z._~+/=-]{0,40}\d)[\w.~+/=-]{12,}|"
    r"(-pass(?:in|out)? pass:)\S{3,}|(jdbc:oracle:\w{1,10}:[\w.$-]{1,60}/)[^\s@]{3,200}(?=@)|"
    r"((?<![\w.+:/@-])[\w.+-]{2,40}:)(?=[^\s:@/\"']{0,40}\d)[^\s:@/\"'\d]{0,40}[^\s:@/\"']{6,80}(?=@[\w-]{1,60}\.[\w.-]{2,80})|"  # user:password@host
    r"((?<![\w-])(?:-u|--user|--proxy-user|--auth|--creds)[ =]{1,4}[\"']?[\w.@+-]{0,80}:)(?!\d{1,8}\b)[^\s\"']{4,}|"  # curl
    r"((?<![\w-])(?:-u|--user)[ =]{1,4}[\"']?)(?=\S{0,80}\d)[\w.~+/=-]{20,}(?=:(?:[\s\"']|$))|"
    r"((?:^|(?<=\s))(?!\S{0,80}\.py:)[\w.*-]{1,80}:(?:\d{4,5}|\*):[\w.*-]{1,60}:[\w.*-]{1,60}:)(?=(?:[^\s:\\]|\\.){0,80}[\d$!#%&*])(?=[^\s:]{0,80}[A-Za-z])(?:[^\s:\\]|\\.){6,100}(?=\s|$)|"  # .pgpass
    r"((?<![\w.+:/@-])[\w.+-]{1,40}:)[^\s\"'`]{1,128}?(?=@(?:tcp|udp|unix)[46]?\()|"  # of Go's drivers
    r"(://[^\s/\"'<>]{1,200}/(?:[\w.-]{1,40}/){0,4}?(?:t|token|key|reset|confirm|verify|invite|activate|magic|join|share)/(?:\w{1,12}/)?)(?:(?:[a-z]{2}-)?[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|(?=[A-Za-z]{0,40}\d)(?=[a-z0-9]{0,60}[A-Z])\w{20,200})(?=/)|"
    r"((?:^|[\s\"'=])(?:MUNGE:))[A-Za-z0-9+/=]{20,}|"
    r"((?i:https?://[^\s/\"'<>]{1,200}/(?:[\w.-]{1,60}/){0,4}?(?:incoming)?(?:web)?hooks?(?:b2)?/))(?=[\w@.-]{0,80}\d)[\w/@?=&%.:+-]{16,}"
)
_URL = regex(
    r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{1,20})://([^/\s\"'<>?#]{1,512}|[^:@/\s\"'<>]{0,80}:(?!\d{1,5}[/?#])[^\s\"'<>@]{1,256})@"
)
_BASIC = regex(r"(?i:(?<![\w-])((?:basic|plain|login|xoauth2)\s{1,4}))([A-Za-z0-9+/]{8,512}={0,2})(?![\w+/])")
# A name before a host of these is an account, as in `ssh://git@host`.
_LONGEST_USER = 20  # characters; more may be a token
_ACCOUNTS = (
    "ssh",
    "sftp",
    "scp",
    "rsync",
    "nfs",
    "smb",
    "hdfs",
    "afs",
    "ftp",
    "wasb",
    "wasbs",
    "abfs",
    "abfss",
)
_BEGIN = regex(
    r"-----BEGIN (?:(?!PUBLIC|CERT)[\w-]{1,20} ){0,5}(?i:KEY|SEED|SECRET|CREDENTIALS)(?: [\w-]{1,20}){0,2}-----"
)


def hide_tokens(text: str) -> str:
    """Return text with every secret that is recognized by its form replaced by `***`. Linear in the text's length."""
    if len(text) > _SHORTEST_PAIR:
        text = _AFTER_ID.sub(_without_last, text)
    if "\n" in text:
        text = _WRAPPED.sub(_without_wrapped, text)
    return _TOKEN.sub(_without_token, text)


def hide_blobs(text: str) -> str:
    """Return text without long runs of random base64."""
    return _BLOB.sub(_without_blob, text)


def _without_blob(match: re.Match[str]) -> str:
    return match.group() if match.lastgroup or _is_public(match.group()) else "***"


def _is_public(blob: str) -> bool:
    """Return whether a run of base64 is no secret: words, or a public SSH key, which begins with the length and the name of its kind."""
    return not is_mixed(blob) or b64decode(blob[:12])[4:7] in (b"ssh", b"ecd", b"sk-")


def hide_accounts(text: str) -> str:
    """Return text without the private keys, the accounts in URLs and the arguments of commands in it."""
    text = _BASIC.sub(_without_basic, _URL.sub(_without_account, _hide_keys(text)))
    text = _AFTER.sub(lambda match: "".join(part or "" for part in match.groups()) + "***", text)
    return _FORMS.sub(lambda match: match["public"] or "***", text)


def _without_token(match: re.Match[str]) -> str:
    """Within a word only what looks random is a token: `my_hf_XXXX`, not `task-0123`."""
    before = match.string[match.start() - 1 : match.start()]
    inside = before.isalnum() or before in ("_", "-")
    return "***" if not inside or match.group().isupper() or is_mixed(match.group()) else match.group()


def _without_wrapped(match: re.Match[str]) -> str:
    return "***" if is_mixed(match.group(2)) else match.group()


def _without_last(match: re.Match[str]) -> str:
    before, secret = filter(None, match.groups())
    sure = before.startswith(("AC", "SK", "LTAI", "ak-", "SCW"))
    return f"{before}***" if sure or is_mixed(secret) else match.group()


def _hide_keys(text: str) -> str:
    """Hide private keys in PEM, whose end may be cut off."""
    parts, at = [], 0
    while begin := _BEGIN.search(text, at):
        parts += [text[at : begin.end()], "***"]
        end = text.find("-----END", begin.end())
        at = end if end >= 0 else len(text)
    return "".join([*parts, text[at:]]) if parts else text


def _without_basic(match: re.Match[str]) -> str:
    """Hide base64 behind `Basic` that holds a user and a password."""
    try:
        plain = b64decode(match[2] + "=" * (-len(match[2]) % 4)).decode()
    except (Error, ValueError):
        return match.group()
    pair = re.sub(r"[\0\1]", ":", plain)
    return match[1] + "***" if ":" in pair and pair.isprintable() else match.group()


def _without_account(match: re.Match[str]) -> str:
    scheme, account = match.groups()
    user, _, password = account.partition(":")
    if not password and scheme.rpartition("+")[2] in _ACCOUNTS:
        return match.group()
    if password and len(user) < _LONGEST_USER and is_placeholder(password):
        return match.group()
    return f"{scheme}://***@"
