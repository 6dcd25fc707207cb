"""Secrets that are known by their own form, whatever stands before them.

The forms are those that issuers publish for secret scanners, as collected by gitleaks (config/gitleaks.toml, v8) and GitHub
(docs, "Supported secret scanning patterns"). Lengths are lower bounds below the real ones, because quoted text may be cut.
A form must be one that no hash, commit id, uuid or name of a module has.
"""

from __future__ import annotations

import re

from hangscope.regex import regex

# Each starts with a literal and ends in one repeated class, so that one attempt looks at every character once.
_PREFIXED = (
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{12,}",  # AWS
    r"AIza[\w-]{20,}|ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,}|1//0[\w-]{30,}",  # Google
    r"gh[oprsu]_\w{16,}|github_pat_\w{20,}",
    r"gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat)-[\w.-]{16,}",  # GitLab
    r"xox[abceoprs][.-][\w.-]{10,}|xapp-\d-[\w-]{10,}",  # Slack
    r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}",  # Hugging Face
    r"sk-(?:proj|ant|svcacct|admin|or)-[\w-]{12,}|sk-(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{20,}",  # OpenAI, Anthropic
    r"[rs]k_(?:live|test)_\w{10,}|whsec_[\w+/=]{20,}",  # Stripe
    r"npm_[A-Za-z0-9]{30,}|pypi-[Aa]g[\w-]{20,}|rubygems_[0-9a-f]{30,}|dckr_[op]at_[\w-]{20,}",  # registries
    r"hv[bsr]\.[\w-]{20,}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{30,}",  # Vault, Terraform
    r"do[opr]_v1_[0-9a-f]{30,}|dapi[0-9a-f]{30,}|dp\.(?:pt|st|ct|sa)\.\w{30,}|lin_api_\w{20,}",
    r"SG\.[\w-]{16,}\.[\w-]{16,}|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{20,}|sq0[a-z]{3}-[\w-]{20,}",
    r"gl(?:c|sa)_[\w+/=]{24,}|NRAK-[A-Z0-9]{20,}|PMAK-[\w-]{30,}|sntry[su]_[\w+/=.]{30,}",
    r"ATATT3[\w=-]{30,}|ATBB\w{24,}|pscale_(?:tkn|pw|oauth)_[\w.-]{20,}|pul-[0-9a-f]{30,}",
    r"tskey-[a-z]+-[\w-]{12,}|sbp_[0-9a-f]{30,}|dt0c01\.[A-Z0-9]{20,}\.[A-Z0-9]{30,}|AKCp[A-Za-z0-9]{40,}",
    r"nvapi-[\w-]{30,}|gsk_[A-Za-z0-9]{30,}|r8_[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{30,}",
    r"wandb_v1_\w{20,}|secret_[A-Za-z0-9]{40,}|ntn_[A-Za-z0-9]{40,}|sha256~[\w-]{40,}|fm[12]_[\w+/=]{40,}",
    r"\d{8,10}:AA[\w-]{30,}",  # Telegram
    r"[\w~.]{3}\dQ~[\w~.-]{30,}",  # Microsoft Entra
    r"AGE-SECRET-KEY-1[0-9A-Z]{40,}",
    r"eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?",  # JSON web token
    r"MII[A-Za-z0-9+/=]{60,}|b3BlbnNzaC1rZXktdjE[A-Za-z0-9+/=]{20,}",  # the lines of a PEM block, by themselves
)
_TOKEN = regex(r"(?<![A-Za-z0-9_-])(?:" + "|".join(_PREFIXED) + ")")

# What stays tells whose it is; what is hidden follows it.
_AFTER = regex(
    r"((?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/webhooks|"
    r"webhook\.office\.com/webhookb2|chat\.googleapis\.com/v1/spaces|api\.telegram\.org/bot)/?)[\w/@?=&%.:+-]{10,}|"
    r"((?<![A-Za-z])(?i:bearer)\s{1,4})(?=[A-Za-z._~+/=-]{0,40}\d)[\w.~+/=-]{12,}|"
    r"((?<![\w-])sshpass\s{1,4}-p\s{0,4})\S{3,}|"
    r"((?<![\w-])login\s{1,4}\S{1,80}\s{1,4}password\s{1,4})\S+|"  # .netrc
    r"((?<![\w-])mysql\w{0,8} (?:\S{1,80} ){0,6}-p)\S{3,}|((?<![\w-])redis-cli (?:\S{1,80} ){0,6}-a )\S{3,}|"
    r"((?<![\w-])wandb login (?:--\S{1,80} ){0,4})[\w-]{20,}|"
    r"((?<![\w-])(?:-u|--user|--proxy-user)[ =]{1,4}[\w.@+-]{1,80}:)(?!\d{1,8}\b)[^\s\"']{4,}"  # curl
)
_URL = regex(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{1,20})://([^/\s\"'<>?#]{1,512})@")
# A name before a host of these is an account, as in `ssh://git@host`.
_ACCOUNTS = ("ssh", "sftp", "scp", "rsync", "nfs", "smb", "hdfs", "afs", "ftp")
_BEGIN = regex(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")


def hide_tokens(text: str) -> str:
    """Return text with every secret that is known by its form replaced by `***`. Linear in the text's length."""
    text = _hide_keys(text)
    text = _URL.sub(_without_account, text)
    text = _AFTER.sub(lambda match: "".join(part or "" for part in match.groups()) + "***", text)
    return _TOKEN.sub("***", text)


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
