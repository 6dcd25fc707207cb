"""Which names say that their value is a secret: `AWS_SECRET_ACCESS_KEY`, `db.password`, `X-Auth-Token`, `clientSecret`.

In the logs of training jobs most tokens are words of a model and most keys are names of tensors or of a store, so these two words
alone prove nothing: then the value itself must look random.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise

from hangscope.model.regex import regex

MAX_NAME = 80
_STRONG = 12  # characters of a value that a weak word precedes
_TOKEN_MARK = "\u0120"  # with which tokenizers begin a word
_SHORTEST = 6  # characters of a password
_HYPHENS = 2  # in a key that a service issues
_TURNS = 3  # from one kind of character to another
_WORDS = regex(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\dA-Z_]+|\d+")
#: "Password" in other languages.
FOREIGN = (
    "passwort", "kennwort", "zugangscode", "contraseña", "contrasena", "contrasenya", "senha", "wachtwoord", "wagwoord", "hasło", "haslo",
    "heslo", "lösenord", "losenord", "passord", "adgangskode", "lykilorð", "salasana", "parool", "jelszó", "jelszo", "şifre", "lozinka",
    "slaptažodis", "pasahitza", "пароль", "парола", "лозинка", "κωδικός", "סיסמה", "סיסמא", "كلمة المرور", "كلمة السر", "رمز المرور", "كلمةالمرور", "رمز عبور", "گذرواژه",
    "पासवर्ड", "รหัสผ่าน", "mật khẩu", "kata sandi", "密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호", "패스워드",
)  # fmt: skip
SHORT_FOREIGN = ("passe", "motdepasse", "mdp", "parola", "parolă")  # also the ends of other words
#: "Key", "token" and "secret" in other languages, where the value is not a word.
FOREIGN_KEYS = (
    "parole", "clave", "geslo", "sandi",
    "schlüssel", "schluessel", "geheimnis", "geheim", "clé", "jeton", "chave", "segredo", "llave", "secreto", "secreta", "secrète", "chiave", "segreto", "sleutel",
    "klucz", "klíč", "nyckel", "hemlighet", "avain", "anahtar", "ключ", "токен", "секрет", "密钥", "密鑰", "令牌", "秘密鍵", "トークン", "키", "토큰",
)  # fmt: skip
_SECRET_ENDS = (
    "password", "passwd", "passphrase", "passcode", "secret", "credential", "credentials", "apikey", "authtoken", "accesstoken",
    "accesskey", "secretkey", "privatekey", "authorization", "dockerconfigjson", "jsessionid", "phpsessid", "cookie", "pwd", "jwt", "pswd", "psw",
    *FOREIGN,
)  # fmt: skip


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SECRET_KEYS = _set(
    "api access private secret account shared encryption signing master auth ssh deploy service storage license "
    "subscription consumer webhook gpg pgp aes rsa hmac jwt app application admin client crypt decryption openai anthropic "
    "wandb aws azure gcp comet"
)
_PLAIN_KEYS = _set(
    "public sort primary foreign partition cache store hash dict map group unique index lookup row column config param "
    "state barrier metric tag label json join query value key object table order region data model id name idempotency surrogate correlation"
)
_PLAIN_TOKENS = _set(
    "pad eos bos unk sep cls mask max min num next special last first image per prompt stop end start new n total audio "
    "video input output additional vocab sample each cancellation current previous prev target source begin space text word "
    "eot eod tool decoder encoder visual padding"
)
_PASS_OF = _set(
    "db database smtp mail user admin root ftp ssh redis mysql mariadb pg postgres postgresql mongo mongodb rabbitmq sql "
    "bind ipmi bmc idrac ilo snmp smb wifi vnc rdp repo registry git svn jenkins grafana minio s3 kafka nats consul etcd sys svc service storage krb "
    "ldap proxy ssl tls cert keystore truststore sudo vpn http basic auth login account become"
)
_UNGLUED = tuple(word for word in FOREIGN_KEYS if not word.isascii())
#: A pass over something, and no password.
_PLAIN_PASS = _set(
    "forward backward first second third last next num n one two single multi low high band by all this test per max min epoch data train "
    "eval compile optim fusion graph lowering inductor dry warmup render full partial fwd bwd rate"
)
_NO_SECRET = _set(
    "none null true false nil undefined empty unset missing required optional yes no redacted hidden masked removed invalid "
    "expired files compat not is was and or in of for the str string bytes int float bool any"
)
_PLACEHOLDER = regex(
    r"(?:(?:bearer|basic|token) {1,4})?(?:\*+|[)\]};,]+|x+|\.+|-+|<[\w .-]{0,40}>?|\[[\w .-]{0,40}\]?|\([\w .-]{0,40}\)?|\$\{?[A-Za-z_]\w*\}?|\$\{[a-z_.]{1,20}:[A-Za-z_.]{1,60}(?:,(?:null)?)?\}?|"
    r"\$\(.*|%\(.*|%[sr]|\{\{.*|\{[A-Za-z_.]{0,40}\}?|your[_-][\w-]{1,40}|\d{0,3}|"
    # kept elsewhere, or asked for: `op://vault/item`, `${{ secrets.X }}`, `Password for %s: `
    r"(?:ref\+)?(?:op|vault|bao|ssm|awssm|gcpsm|azurekv|keyring|doppler|infisical|secretsmanager)://[\w./#?=& -]{1,200}|env:[A-Z_]{1,60}|=\d[\w.+-]{0,40}|"
    r"\$\{\{.*|(?:[a-z]{2,12} ){0,4}(?:password|passphrase|key|token|secret)(?: [\w%{}'-]{1,40}){0,6}[:?] ?)",
    re.I,
)
#: A number with its unit, a path, or words joined by underscores and points: none is a password that somebody chose.
_PLAIN = regex(
    r"[\w.]+[(\[].*|\[.*|[-+~]?\d[\d.,:e+-]*[A-Za-z%/]{0,8}|[/~\\<(].*|[A-Za-z]:\\.*|[A-Za-z0-9]+(?:[_./-][A-Za-z0-9]+)+|[A-Za-z]+"
)


#: What stands in place of a value and may hold a name of its own: `<your-api-key>`, `${{ secrets.HF_TOKEN }}`; or goes on in prose.
REFERENCE = regex(
    r"\$\{\{[^{}\n]{0,200}\}\}|<[A-Za-z][\w .-]{0,40}>|\$\{?[A-Za-z_]\w{0,80}\}?(?=[\s\"',;]|$)|"
    r"(?i:password|passphrase|secret|token|key) (?:is|was|has|for|must|[a-z]{2,12}ed)(?![\w:=])"
)


#: What no password is, but an address, a path, a pair, a version, a qualified name, a UUID, an address in memory.
_NO_PASSWORD = regex(
    r"[/\\=@:]|\*\*\*|\d\.\d|[A-Za-z_]\w{1,40}\.[A-Za-z_]\w{0,40}(?:[A-Za-z_.]|(?<!\d)\d)(?![\w.])|[a-z_]\w{0,40}\.\w{1,40}\.|[0-9a-f]{8}-[0-9a-f]{4}|0x[0-9a-fA-F]{2}|(?i:sha\d|hmac|pbkdf|argon2|25519|aes\d|md5)|[Vv]\d(?:alpha|beta)\d"
)
_SIZES = frozenset(("16", "32", "64", "128", "256", "384", "512", "1024"))  # in `Int64Index`, `Sha256Hasher`


class Strength(IntEnum):
    """What a name says of its value."""

    NOTHING = 0
    MAYBE = 1  # a secret if it looks random
    LIKELY = 2  # a secret if it looks like a password
    SECRET = 3


@lru_cache(maxsize=1024)
def strength(name: str, *, in_query: bool = False) -> Strength:
    """Return what a name of at most `MAX_NAME` characters says of its value; `in_query`: it is a parameter of a URL."""
    if not name.isascii() and (found := _foreign(name.lower())):
        return found
    if name.startswith(_TOKEN_MARK):
        return Strength.NOTHING
    words = [word.lower() for word in _WORDS.findall(name if name.isascii() else name.lower())]
    if not words:
        return Strength.NOTHING
    *before, last = words
    if last in ("data", "value", "hash", "base") and before:
        *before, last = before  # client-key-data, password_hash
    elif before and before[-1] in ("key", "token") and last in ("b", "text", "str", "string", "raw"):
        *before, last = before
    if name in ("PWD", "OLDPWD"):
        return Strength.LIKELY
    last = last.rstrip("0123456789")
    if last.startswith("secret") and before and before[-1] in ("existing", "pull", "from", "mount", "use"):
        return Strength.LIKELY  # the name of a secret of Kubernetes
    if last.removesuffix("s").endswith(_SECRET_ENDS) or last.endswith(_SECRET_ENDS) or last in SHORT_FOREIGN:
        return Strength.SECRET
    if last.endswith(("pass", "pw")) and last.removesuffix("pass").removesuffix("pw") in _PASS_OF:  # SSHPASS
        return Strength.SECRET
    if (
        last == "secrets"
        or (last == "phrase" and before[-1:] == ["pass"])
        or (last == "id" and before[-2:] == ["access", "key"])
    ):
        return Strength.SECRET
    is_variable = bool(before) and name.upper() == name
    if last in ("key", "keys") and (last == "key" or {"secret", "api"} & set(before)):
        if _SECRET_KEYS & set(before):
            return Strength.NOTHING if "public" in before else Strength.SECRET
        if _PLAIN_KEYS & set(before[-1:]):
            return Strength.NOTHING
        return Strength.SECRET if is_variable or name.lower().startswith("x-") else Strength.MAYBE
    if (
        (last == "session" and before)
        or last in ("crumb", "encrypt")
        or (last.endswith(("token", "authkeys", "authkey")) and last != "token")
    ):
        return Strength.MAYBE
    if words in (["sk"], ["secret", "id"]) or (
        last == "seed" and before
    ):  # beside `ak`, `role_id`; `TOTP seed`
        return Strength.MAYBE
    if last == "token":
        if _PLAIN_TOKENS & set(before):
            return Strength.NOTHING
        return Strength.SECRET if before or in_query else Strength.MAYBE
    if last in ("pass", "pw", "psk"):
        if _PLAIN_PASS & set(before):
            return Strength.MAYBE
        return Strength.SECRET if _PASS_OF & set(before) or is_variable else Strength.LIKELY
    if last in FOREIGN_KEYS or last == "creds":
        return Strength.LIKELY
    if last in ("signature", "sig", "auth", "code", "credential", "ticket", "invite", "otp"):
        marked = in_query or name.lower().startswith("x-")
        return (
            Strength.SECRET
            if marked
            else Strength.NOTHING
            if last in ("code", "invite", "otp")
            else Strength.MAYBE
        )
    return Strength.NOTHING


def _foreign(name: str) -> Strength:
    """Return what a name with letters beyond ASCII says, which may be glued to the word before it."""
    if name.endswith(FOREIGN):
        return Strength.SECRET
    return Strength.LIKELY if name.endswith(_UNGLUED) else Strength.NOTHING


def is_secret(value: str, how: Strength) -> bool:
    """Return whether a value whose name says `how` is to be hidden."""
    if how is Strength.NOTHING or value.lower() in _NO_SECRET or is_placeholder(value):
        return False
    if how is Strength.SECRET:
        return True
    user, _, password = value.rpartition(":")
    if ":" in user:  # the key of a store
        return False
    if looks_typed(password) or _looks_random(value):
        return True
    return looks_chosen(value) if how is Strength.LIKELY else len(value) >= _STRONG and looks_made(value)


def is_placeholder(value: str, name: str = "") -> bool:
    """Return whether a value stands for one that is not shown: `***`, `${HF_TOKEN}`, or `API_KEY` of the name `--api-key`."""
    words = [word.upper() for word in _WORDS.findall(name)][-1:]
    if words and value.isupper() and words[0] in value and value.replace("_", "").isalpha():
        return True
    return len(value) <= MAX_NAME and _PLACEHOLDER.fullmatch(value) is not None


def looks_made(value: str) -> bool:
    """Return whether a value is a password as machines make them: capitals, small letters and mostly digits in turn."""
    part = value[:MAX_NAME]
    digits = any(map(str.isdigit, part))
    turns = _changes(part) >= _TURNS and {"u", "l"} <= set(map(_kind, part)) if digits else is_mixed(part)
    return (
        turns
        and len(part) >= _SHORTEST
        and "\\" not in part
        and (not _PLAIN.fullmatch(part) or part.isalpha())
    )


def looks_chosen(value: str) -> bool:
    """Return whether a value is what somebody may choose as a password: of several kinds of characters, and no number, path or words."""
    part = value[:MAX_NAME]
    if len(part) < _SHORTEST or (_PLAIN.fullmatch(part) and not (part.isalpha() and is_mixed(part))):
        return looks_typed(part)
    kinds = (str.islower, str.isupper, str.isdigit, lambda c: not c.isalnum())
    return sum(any(map(kind, part)) for kind in kinds) > 1 or is_mixed(part)


def looks_typed(value: str) -> bool:
    """Return whether a value is letters with digits or signs as in a password, and in no identifier, version, host, path or hash."""
    if not 8 <= len(value) <= MAX_NAME or _NO_PASSWORD.search(value) or value.startswith(("$", "-", "#")):
        return False
    letters, numbers = any(map(str.isalpha, value)), re.findall(r"\d+", value)
    if any(c in "!#$&*?^~" for c in value):
        return letters and (bool(numbers) or is_mixed(value))
    if len({_kind(c) for c in value} & {"u", "l", "d"}) < 3:
        return False
    return len(numbers) > 1 or (len(numbers[0]) > 1 and numbers[0] not in _SIZES)


def looks_issued(value: str) -> bool:
    """Return whether a value is a key as services issue them: 32 hex digits or more, or letters and digits that alternate as in no word."""
    if re.fullmatch(r"[0-9a-f]{32,128}", value):
        return _looks_random(value)
    if value.count("-") > _HYPHENS or value.startswith("_Z"):  # names of models and of functions
        return False
    return any(map(str.isdigit, value)) and is_mixed(re.sub(r"[-_+/=]", "", value))


def looks_joined(value: str) -> bool:
    """Return whether a value is words that hyphens join, as people choose them: capitals, and digits beside letters."""
    parts = value[:MAX_NAME].split("-")
    return (
        len(parts) > 1
        and all(part.isalnum() for part in parts)
        and any(any(map(str.isdigit, part)) and not part.isdigit() for part in parts)
        and {"u", "l"} <= {_kind(c) for c in value[:MAX_NAME]}
    )


def _looks_random(value: str) -> bool:
    """Return whether a value is of no words: a long part of letters and digits that change places often."""
    part = max(re.split(r"[^A-Za-z0-9+]", value[:256]), key=len)
    if len(part) < 16:
        part = re.sub(r"[-_]", "", value[:256]) if re.fullmatch(r"[0-9a-fA-F-]{32,36}", value) else part
    if len(part) < 16 or part.isdigit() or part.isalpha():
        return False
    counts = Counter(part)
    entropy = -sum(n / len(part) * math.log2(n / len(part)) for n in counts.values())
    return entropy >= 2.8 and _changes(part) * 5 >= len(part)


def is_mixed(text: str) -> bool:
    """Return whether capitals, small letters and digits alternate as in no word, path, hash or class name."""
    text = text[:256]
    kinds = {_kind(c) for c in text}
    return kinds >= {"u", "l"} and _changes(text) * 10 >= 3 * len(text)


def _changes(text: str) -> int:
    return sum(1 for one, other in pairwise(map(_kind, text)) if one != other and "-" not in one + other)


def _kind(c: str) -> str:
    return "d" if c.isdigit() else "u" if c.isupper() else "l" if c.isalpha() else "-"
