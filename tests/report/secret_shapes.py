"""Shapes in which secrets stand in logs, and harmless text that looks like them: the lines of `shapes/`.

In a shape, `{name:kind}` is the secret: it is generated, so that no real one stands here. `shapes/unseen_*.json` hold texts that were
written without knowledge of the code, with what leaked when they were first masked; `python -m tests.report.secret_shapes` prints all.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

ALPHABETS = {
    "an": string.ascii_letters + string.digits,
    "up": string.ascii_uppercase + string.digits,
    "low": string.ascii_lowercase + string.digits,
    "hex": "0123456789abcdef",
    "b64": string.ascii_letters + string.digits + "+/",
    "dig": string.digits,
}


class Secret:
    """A secret of so many characters of an alphabet: `{an:36}`. Plain passwords: `{word:}`, with blanks: `{words:}`."""

    def __init__(self, kind: str, made: list[str]) -> None:
        self.kind, self.made = kind, made

    def __format__(self, length: str) -> str:
        """Return a new one."""
        if self.kind == "word":
            text = "hunter" + str(len(self.made)) + "bluemoon"
        elif self.kind == "words":
            text = "correct horse battery staple"
        else:
            chance = random.Random(f"{self.kind}{length}{len(self.made)}")
            text = "".join(chance.choice(ALPHABETS[self.kind]) for _ in range(int(length)))
        self.made.append(text)
        return text


def expand(shape: str) -> tuple[str, list[str]]:
    """Return a line with secrets in the shape's places, and these secrets."""
    made: list[str] = []
    fields: dict[str, Any] = {kind: Secret(kind, made) for kind in (*ALPHABETS, "word", "words")}
    return shape.format(**fields), made


def _lines(name: str) -> tuple[str, ...]:
    return tuple((Path(__file__).parent / "shapes" / name).read_text(encoding="utf-8").splitlines())


#: Shapes with what does not stand in a line of a file: escape codes, marks that are not seen, other signs for the same.
SECRETS = (
    *_lines("secrets.txt"),
    "HF_TOKEN=hf_{an:12}\x1b[0m{an:22}",
    "hf_{an:10}\u200b{an:24} was used",
    "pass\u200bword={word:}",
    "pass\x05word={word:}",
    "hf_{an:10}\ufffd{an:24} was used",
    "pass\x1b[1mword\x1b[0m={word:}",
    "password\x1b[0m=\x1b[31m{word:}\x1b[0m",
    "AKIA\u200d{up:16}",
    "ghp_{an:8}\u00ad{an:28}",
    "glpat-\u2060{an:20}",
    "api\ufe0f_key={word:}",
    "password\uff1d{word:}",
    "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44={word:}",
    "password\u00a0=\u00a0{word:}",
    "\x1b]0;title\x07DB_PASSWORD={word:}",
    "hf_{an:20}\n{an:14}",
    "token hf_{an:30}\n    {an:14} rejected",
    "sk-proj-{an:40}\n{an:40}",
    "token = dapi{hex:15}\n    3f7{hex:14}",
    "key: dop_v1_a1{hex:38}\\n        4c9d{hex:20}",
    "glpat-{an:9}7\r\n\tb4{an:8}\nPATH=/usr/bin",
    "ghp_{an:6}\n{an:30}",
    "eyJhbGciOiJIUzI1NiJ9.{an:40}\n{an:30}.{an:43}",
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\nQyNTUxOQAAACB{an:57}\n{an:70}",
    "QyNTUxOQAAACB{an:57}",
    "password\t\t=\t{word:}",
    "passwords = ['{word:}',\n '{word:}']",
    "salt-call pillar.get slurm:db_pass\nlocal:\n    {low:26}\ngpu04:",
    "imagePullSecrets:\n- name: a\nregistryPassword: {word:}",
    "secrets:\n  - {an:20}",
    "files:\n  - path: /etc/tls/svc.keytab\n    content_b64: {b64:80}",
)

HARMLESS = (
    *_lines("harmless.txt"),
    "imagePullSecrets:\n- name: a\nreason: CrashLoopBackOff",
    "secrets:\n- wandb\n- train-env",
    "credentials:\n  secretName: minio-train",
    "HF_TOKEN=\nWANDB_API_KEY=\nNCCL_DEBUG=INFO",
    "password:\n\n# Log level\nlog_level: info",
    "Mot de passe :\nL'authentification a échoué",
    "Пароль:\nОшибка: неверный пароль",
    "密码:\n密码错误,请重试",
    "| Variable | Default |\n|---|---|\n| HF_TOKEN | none |\n| WANDB_API_KEY | none |",
    "       --secret=secret\n              Shared secret of the server.",
)
#: The sets of unseen texts, in the order in which they were written.
UNSEEN: tuple[dict[str, Any], ...] = tuple(
    json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(
        (Path(__file__).parent / "shapes").glob("unseen_*.json"), key=lambda path: (len(path.name), path.name)
    )
)
LEAST = 6  # characters of a secret in a row that may not be left


def left_of(secret: str, masked: str, text: str = "") -> str:
    """Return a part of a secret that is left in a masked text, and stands nowhere else in the text."""
    least = min(LEAST, len(secret))
    parts = (secret[at : at + least] for at in range(len(secret) - least + 1))
    around = text.replace(secret, "")
    return next((part for part in parts if part in masked and part not in around), "")


def leaked(mask: Callable[[str], str], texts: dict[str, Any]) -> list[str]:
    """Return which secrets of a set of unseen texts are left, by their ids."""
    return [
        item["id"]
        for item in texts["secrets"]
        if any(left_of(s, mask(item["text"]), item["text"]) for s in _each(item["secret"]))
    ]


def changed(mask: Callable[[str], str], texts: dict[str, Any]) -> list[str]:
    """Return which look-alikes of a set of unseen texts do not stay as they are, by their ids."""
    return [item["id"] for item in texts["lookalikes"] if mask(item["text"]) != item["text"]]


def _each(secret: str | list[str]) -> list[str]:
    return [secret] if isinstance(secret, str) else secret


def table() -> str:
    """Return what leaked of each set of unseen texts at the first look, and now, in Markdown."""
    from hangscope.report.masking.secrets import presentable

    lines = [
        "| texts that were written first | secrets that leak | look-alikes that change |",
        "| --- | ---: | ---: |",
    ]
    for number, texts in enumerate(UNSEEN, 1):
        first = texts["first_look"]
        for when, out, lost in (
            ("at the first look", first["leaked"], first["changed"]),
            ("now", leaked(presentable, texts), changed(presentable, texts)),
        ):
            sizes = len(texts["secrets"]), len(texts["lookalikes"])
            lines.append(f"| set {number}, {when} | {len(out)} of {sizes[0]} | {len(lost)} of {sizes[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(f"{len(set(SECRETS))} shapes of secrets and {len(set(HARMLESS))} harmless look-alikes\n")
    print(table())
