r"""Secrets in the arguments of commands: which programs take one after which option, and which take one by its place.

    ipmitool -H 10.20.3.41 -U ADMIN -P XXXX chassis power cycle      docker login -u me -pXXXX registry.example
    mc alias set ckpt http://minio.lan:9000 KEYID XXXX               smbclient //nas/share -U 'LAB\loader%XXXX'

Facts from the manual pages of the programs. `OPTIONS`: programs, and the options behind which the secret follows; `/` marks an
option whose secret is glued to it, and `%` one whose secret follows a percent sign. `PLACES`: what precedes a secret that only its
place tells; `VALUE` stands for one argument, `SOME` for several.
"""

from __future__ import annotations

import re

from hangscope.model.regex import regex
from hangscope.report.masking.key_names import (
    Strength,
    is_placeholder,
    is_secret,
    looks_chosen,
    looks_typed,
)

OPTIONS: tuple[tuple[str, str], ...] = (
    ("login mongo mongosh mongodump mongorestore mongoexport cqlsh racadm rdesktop clickhouse-client impala-shell beeline hdbsql "
     "useradd usermod arangosh influx ipa-client-install nifi couchbase-cli", "-p"),
    ("docker podman nerdctl helm mysql mysqldump mysqladmin mariadb 7z 7za 7zr rar unrar", "/-p"),
    ("ipmitool ipmiconsole sqlcmd bcp mosquitto_pub mosquitto_sub p4 unzip zip hponcfg zkCli.sh pulsar-admin", "-P"),
    ("ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldappasswd ldapcompare kadmin dsconf ipa-client-install", "-w"),
    ("kadmin dsconf ldapsearch ldapadd ldapmodify", "/-w"),
    ("redis-cli valkey-cli keydb-cli", "-a"),
    ("plink pscp psftp putty", "-pw"),
    ("smbclient rpcclient net smbget winexe wmiexec.py mount.cifs", "%-U"),
    ("snmpwalk snmpget snmpset snmpbulkwalk", "-c"),
    ("snmpwalk snmpget snmpset snmpbulkwalk", "-A"),
    ("snmpwalk snmpget snmpset snmpbulkwalk", "-X"),
    ("openssl gpg", "-k"),
    ("openssl", "-K"),
    ("ssh-keygen", "-N"),
    ("xfreerdp wfreerdp", "//p:"),
    ("skopeo buildah crane", "--creds"),
)  # fmt: skip
PLACES: tuple[str, ...] = (
    r"sshpass\s{1,4}-p\s{0,4}", r"login\s{1,4}\S{1,80}\s{1,4}password\s{1,4}", r"unzip (?:\S{1,80} ){0,4}-P ?", r"lftp -u [\w.@-]{1,60},",
    r"(?:sqlplus|sqlldr|expdp|impdp) (?:-\w{1,4} ){0,3}[\w.$-]{1,60}/(?=[^\s@]{3,200}@)",
    r"mc (?:alias set|config host add) VALUE VALUE VALUE ", r"(?:wandb|vault) login (?:--?\S{1,80} ){0,4}(?=[\w.-]{20})",
    r"vault operator (?:unseal|rekey|generate-root)(?: --?\S{1,80}){0,4} (?=[\w+/=]{20})", r"htpasswd -\w{0,8}b\w{0,8} VALUE VALUE ",
    r"net use VALUE VALUE (?!/)", r"isql VALUE VALUE ", r"user set password \d{1,4} ", r"(?i:\"AUTH\" (?:\"[\w.@-]{1,80}\" (?=\"))?)", r"AUTH default ", r"net user VALUE (?!/)", r"ConvertTo-SecureString ", r"rclone obscure ", r"wpa_passphrase VALUE ", r"(?:--)?(?:requirepass|masterauth|rootpw|bindpw|rocommunity|rwcommunity)[ =]",
    r"(?i:[\w-]{0,40}pass(?:word|phrase)?[-_]?(?:command|cmd))[ =]['\"]?(?:echo|printf) (?:-n )?",
    r"::add-mask::", r"(?i:identified (?:with \w{1,40} )?by (?:values )?(?=['\"]))", r"nmcli SOME password ", r"iscsiadm SOME -v ",
    r"kubeadm join VALUE --token ", r"(?i:acl setuser|user) (?:\S{1,80} ){1,5}>", r"(?:password|secret|key) [0-9] (?=[0-9A-Fa-f\$]{2})", r"swarm join --token ", r"(?:chpasswd|passwd --stdin) <<< ?['\"]?(?:[\w.-]{1,40}:)?",
    r"(?:rclone|restic|borg|duplicity) SOME (?:--password|pass|--passphrase)[ =]",
    r"echo {1,4}(?:-\w{1,3} {1,4})?[\"']?(?=[^|\n]{4,200}\| {0,4}[^|\n]{0,80}(?:--password-stdin|--with-token|chpasswd|passwd |passwd --stdin|sudo -S|kinit|gpg \S{0,40}passphrase-fd))(?:[\w.-]{1,40}:(?=[^|\n]{4,80}\| {0,4}(?:sudo )?chpasswd))?",
)  # fmt: skip
# A password after the name of a user, of any command: `-u bob -p XXXX`, `open -u bob,XXXX`, `http -a bob:XXXX`.
_OF_A_USER = regex(
    r"((?<![\w-])(?:(?:-[uUl]|--?user(?:name)?)[ =]{1,3}[\w.@\\-]{1,60}(?:,(?=\S{0,60}[^\w\s/.,-])|(?: -\S{1,60}){0,2} {1,3}(?:-[pPw]|--?pass(?:word)?)[ =]{1,3}[\"']?)|-a[ =]{1,3}[\"']?[\w.@+-]{1,60}:))([^\s\"']{4,64})"
)
_HERE = regex(r"(<<< ?\\*[\"']?)([^\s\"'|<>]{6,64})")  # a string on standard input
_OTHERS = regex(
    r"(?<![\w-])(?:mysql|mariadb|squeue|srun|sbatch|salloc|sinfo|sacct)(?![\w-])"
)  # whose -p means something else
# The argument of a command that logs in: `snyk auth XXXX`, `b2 account authorize ID XXXX`.
_VERB = regex(
    r"((?<![\w-])(?:auth(?:orize|enticate)?|login|signin|activate|register) (?:[0-9a-f]{16,32} )?[\"']?)([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[\w+/=.-]{20,256})(?![\w/:])"
)
_MOST_OPTIONS = 4  # secrets of one command
_FAR = 240  # characters before an option in which its command is looked for
_NO_SECRET = r"(?!\*{3})(?!\d{1,5}(?!\w))"
_QUOTE = r"['\"]?"


def _program(names: str) -> str:
    return rf"(?<![\w-])(?:{'|'.join(map(re.escape, names.split()))}) (?:\S{{1,120}} ){{0,14}}?"


def _pattern(programs: str, option: str) -> str:
    """Return what precedes the secret of an option."""
    style, name = (option[0], option[1:]) if option[0] in "/%" else (" ", option)
    if style == "%":
        return rf"{_program(programs)}{name} ?{_QUOTE}[\w\\.@/-]{{1,80}}%"
    after = "" if style == "/" else r"[ =]"
    return rf"{_program(programs)}{re.escape(name)}{after}{_QUOTE}{_NO_SECRET}"


_BY_OPTION = regex("|".join(f"({_pattern(*row)})[^\\s'\"]{{3,}}" for row in OPTIONS))
_PLACES = "|".join(PLACES).replace("SOME", r"(?:\S{1,80} ){0,9}?\S{1,80}").replace("VALUE", r"\S{1,200}")
_BY_PLACE = regex(rf"((?<![\w-])(?:{_PLACES}){_QUOTE})[^\s'\"]{{3,}}")
_PROGRAMS = frozenset(name.lower() for names, _ in OPTIONS for name in names.split()) | {"login"}
_BETWEEN = str.maketrans(
    dict.fromkeys("/\\'\"`;|&$()[]{}<>=:,", " ")
)  # what separates the words of a command
_IN_PLACE = regex(
    r"(?i) >\S|sshpass|(?:password|secret|key) [0-9] |login|unzip|lftp|sqlplus|sqlldr|[ei][xm]pdp|alias set|host add|net user|securestring|vault|htpasswd|isql|set password|auth|net use|obscure|passphrase|requirepass|masterauth|rootpw|"
    r"bindpw|community|add-mask|identified|nmcli|iscsiadm|kubeadm|swarm join|chpasswd|passwd|rclone|restic|borg|duplicity|echo "
)


def hide_arguments(text: str) -> str:
    """Return text without the secrets among the arguments of commands in it."""
    has_program = not _PROGRAMS.isdisjoint(text.lower().translate(_BETWEEN).split())
    for _ in range(_MOST_OPTIONS if has_program else 0):
        before, text = text, _BY_OPTION.sub(_without, text)
        if text == before:
            break
    if "<<<" in text:
        text = _HERE.sub(
            lambda m: f"{m[1]}***" if looks_typed(m[2]) and not is_placeholder(m[2]) else m.group(), text
        )
    if "-" in text:
        text = _OF_A_USER.sub(_without_password, text)
    text = _VERB.sub(lambda m: f"{m[1]}***" if is_secret(m[2], Strength.MAYBE) else m.group(), text)
    if _IN_PLACE.search(text):
        text = _BY_PLACE.sub(_without, text)
    return text


def _without_password(match: re.Match[str]) -> str:
    line = match.string[max(0, match.start() - _FAR) : match.start()].rpartition("\n")[2]
    hidden = looks_chosen(match[2]) and not is_placeholder(match[2]) and not _OTHERS.search(line)
    return f"{match[1]}***" if hidden else match.group()


def _without(match: re.Match[str]) -> str:
    before = next(part for part in match.groups() if part is not None)
    value = match.group()[len(before) :]
    return match.group() if is_placeholder(value) or value.startswith("-") else f"{before}***"
