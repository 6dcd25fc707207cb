"""Secrets never leave in any output, what only looks like one stays, and masking takes time in proportion to the text."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from hangscope.model.codec import to_plain
from hangscope.report.masking.secrets import presentable
from hangscope.report.masking.walk import change_texts, texts_in
from tests.report.samples import document
from tests.report.secret_shapes import (
    ALPHABETS,
    HARMLESS,
    SECRETS,
    UNSEEN,
    changed,
    expand,
    leaked,
    left_of,
    table,
)


def test_a_secret_is_masked() -> None:
    leaks = []
    for shape in SECRETS:
        for around in ("{}", "[rank3]: 2024-05-01 12:00:00 env: {} and more", '"{}"'):
            line, secrets = expand(shape)
            masked = presentable(around.format(line))
            left = [part for secret in secrets if (part := left_of(secret, masked))]
            if left or not secrets or "***" not in masked or presentable(masked) != masked:
                leaks.append((shape, around, masked))
    assert leaks == []


def test_what_only_looks_like_a_secret_stays() -> None:
    assert {text: masked for text in HARMLESS if (masked := presentable(text)) != text} == {}


@pytest.mark.slow
def test_no_text_leaks_that_was_written_without_knowledge_of_the_code() -> None:
    assert [(leaked(presentable, texts), changed(presentable, texts)) for texts in UNSEEN] == [
        ([], [])
    ] * len(UNSEEN)


@pytest.mark.parametrize(
    "text",
    [
        "host,user,password\nnas01,backup,{}",
        "host,user,password,role\nnas01,,{},",
        "host;password;role\nnas01;{};x\nnas02;{};y",
        "user\tpassword\thost\nbob\t{}\tx",
        '"user","password"\n"bob","{}"',
        "| user | password |\n|------|----------|\n| bob  | {} |",
        "USER    PASSWORD        HOST\nbob     {}     x",
        "usename | passwd\n--------+------\n bob | {}",
        "/ # cat /run/secrets/pg_password\n{}",
        "$ echo $DB_PASSWORD\n{}",
        "$ vault kv get -field=password secret/db\n{}",
        "$ kubectl get secret db -o jsonpath='{{.data.password}}' | base64 -d\n{}",
        "$ openssl rand -hex 12\n{}",
        "$ gh auth token\n{}",
        "Password for the [elastic] user successfully reset.\nNew value: {}",
        "Generated admin password, write it down:\n\n    {}",
        "passwd bob <<EOF\n{}\n{}\nEOF",
        "kind: Secret\nstringData:\n  foo: {}",
        "args:\n- --password\n- {}",
        "<key>password</key>\n<string>{}</string>",
        "USER bob\nPASS {}",
        "Accessor ID  = 6a4dcfe3-11b8-4e73-97b7-4bee444cc727\nSecret Value    = {}",
        "password: |\n  {} {}",
    ],
)
def test_a_secret_is_found_over_several_lines(text: str) -> None:
    """What says that it is one is on a line before it: the header of a table, a command, a sentence, the name of a field."""
    secret = "fig.Tundra-62"
    masked = presentable(text.replace("{{", "{").replace("}}", "}").replace("{}", secret))
    assert "Tundra" not in masked and "***" in masked


@pytest.mark.parametrize(
    "text",
    [
        "$ cat /run/secrets/missing\ncat: /run/secrets/missing: No such file or directory",
        "$ ls /run/secrets\npg_password",
        "$ echo $PASSWORD\n$ ls",
        "$ gh auth token\nno oauth token found",
        "key,value,count\nlayer.0,12,4",
        "step,token,loss\n100,hello,2.3",
        "NAME        SECRET         AGE\ntrainer     hub-token-x     12d",
        "name,password_required\nbob,true",
        "host,user,password_file\nnas,bob,/etc/x",
        "| step | tokens |\n| 100 | 4096 |",
        "Password must be reset.\nNew value required",
        "the password was changed\nexit 0",
        "- --token-file\n- /run/token",
    ],
)
def test_lines_after_one_that_names_a_secret_stay(text: str) -> None:
    assert presentable(text) == text


@pytest.mark.parametrize(
    "around", ["{}", "calling {} failed", "x = foo('{}', 3)", "?q={}&n=1", "[{}]", "a\\n{}\\nb"]
)
def test_random_characters_need_no_word_beside_them(around: str) -> None:
    """Of 32 characters nearly all are recognized, although nothing says what they are."""
    chance = random.Random(around)
    tokens = ["".join(chance.choice(ALPHABETS["an"]) for _ in range(32)) for _ in range(200)]
    assert sum(token in presentable(around.format(token)) for token in tokens) <= 10


@pytest.mark.parametrize(
    "around", ["run {}", "commit: {}", "etag={}", "/cache/{}/k.bin", "{}.so/x", "SHA256:{}", "_ZN3{}E"]
)
def test_random_characters_that_name_something_stay(around: str) -> None:
    chance = random.Random(around)
    for _ in range(50):
        text = around.format("".join(chance.choice(ALPHABETS["an"]) for _ in range(32)))
        assert presentable(text) == text


@pytest.mark.slow
def test_the_documentation_states_the_size_of_the_corpus() -> None:
    counts = f"{len(set(SECRETS))} shapes of secrets and {len(set(HARMLESS))} harmless look-alikes"
    told = (Path(__file__).parents[2] / "docs" / "safety.md").read_text(encoding="utf-8")
    assert counts in told and table() in told


def test_what_stands_around_a_secret_stays() -> None:
    assert presentable("host=db password=abcdef7 port=1") == "host=db password=*** port=1"
    assert presentable("https://me:abcdef7@db/x?a=1") == "https://***@db/x?a=1"
    assert presentable("f(password='a b c', n=1)") == "f(password='***', n=1)"
    assert presentable("banana_password=banana") == "banana_password=***"


def test_every_string_of_the_data_is_masked() -> None:
    data = {"a": ["password=abcdef7", 1, None], "b": {"c": ["token", "HF_TOKEN=abcdef7"]}}
    assert change_texts(data, presentable) == {
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
    "eyJa.", "AKIAAAAAAAAAAAAAAAAA ", "AKIA", "a/", "$6$", "$6$a", "{SHA}a", "login a -p", "login -p ", "ldapsearch a ", "lftp -u a",
    "jdbc:oracle:thin:a", "sqlplus -a ", "password [", "password=['a', ", "password=[", "password={", "token: {", "{'token': {",
    "name: DB_PASSWORD {", "| password ", "| password | ", "│ a │", "password    ", "password ....... ", "a .... ", "hf_", "hf_a\n",
    "hf_aaaaaaaaaaaaaaaaaaaaa\n", "hf_aaaaaaaaaaaaaaaaaaaaaA1a1A1\n", "sk-sk-", "sk-a", "MNaaaaaaaaaaaaaaaaaaaaaaaa.aaaaaa.", "M",
    "a1B2", "MII", "b3BlbnNzaC1rZXktdjEaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", "t1.a", "t1.", "pat.", "Passwort ", "mot de passe pour a",
    "'a', ", "->", "0123456789abcdef", "AKIAAAAAAAAAAAAA=aaaa=", "AKIAAAAAAAAAAAAA+", "密码", "a -> ", "token=A(", "-pass pass:",
    "mongo ", "\n", "eyJa\naaaaaaaaaaaaaaaaaaaaa\n",
    "docker a ", "docker login a -p ", "smbclient -U a", "smbclient a ", "mc alias set a ", "nmcli a ", "iscsiadm a ", "echo a|", "rclone a ",
    "password is ", "password for a is ", "password = ~ ", "Key 1 (a", "share 1: ", "auth=('a',", "login('", "credentials: a/", "A_TOKEN ",
    "a:1234:", "a:*:a:a:", "basic aaaaaaaa ", "a://a:", "a://:a/", "ABCDEFGH12345678", "AC0123456789abcdef0123456789abcdef ", "clave ",
    "{", "'''", "mật khẩu ", "password=a'b", "MUNGE:", "s.a",
    "password--", "password==", "{a", "{\"sensitive\": true, ", "{\"kty\":", "Client('", "a:a@", "://a/t/", "Content-Disposition: form-data; name=\"a\"\n\n", "\"AUTH\" \"a\" ",
    "--password-command 'echo ", "-----BEGIN CERTIFICATE-----", "etag: ", "${{ ", "password=${{ ", "password=<", "token=op://", "パスワードは", "sk='",
    "password Aa1b ", "password Aa11bcde ", "user Aa1!bcde ", "token ", "<<< ", "<<< 'Aa1!bcd", "-u a ", "-u a -p ", "-u a -x ", "connect(", "connect(\"a\",",
    "Aa1!bcde as the password ", "Aa1!bcde as the ", "api key id=", "api key aB3aB3aB3aB3aB3aB3aB3 ", "https://a/hooks/", "https://a/a/a/", "recovery key: A1B2-", "session(",
    "Exa(\"", "a.A(\"", "login(\"ms-", "auth 0123456789abcdef0123 ", "login a", "user a on ", "user on >", "-a a:", "mnemonic: ", "apple ", "mnemonic: apple apple ",
    "recovery codes: ", "recovery codes: a1b2-c3d4\n", "password\n\"result\": \"", "chpasswd:\n list: ", "\"aB3aB3aB3aB3aB3aB3aB3\" token ", "https://a/b/reset/", "a-1:", "SCRAM-SHA-256$1:", "md5",
    "*:1234:*:a:", "*:1234:*:a:\\:", "-----BEGIN a ", "auth=(", "secret ",
    "aB3/", "aB3aB3aB3aB3aB3aB3aB3/", "aB3aB3aB3aB3aB3aB3aB3aB3+", "aB3-", "aB3aB3aB3aB3aB3aB3aB3aB3.", "\\naB3aB3aB3aB3aB3aB3aB3", "a:Aa1!bcde",
    "a:", "Aa1!bcde ", "Aa1!", "a1#b2!c3^", "Aa1!bcde was rejected ", "smbclient Aa11bcde ", "-u Aa11bcde ", "/u:Aa11bcde ", "/Aa11bcde", "run=aB3aB3aB3aB3aB3aB3aB3aB3 ",
    "token: value: ", "AKIAAAAAAAAAAAAA/", "password=[\\", "EAAA", "= \\",
    "sentry ", "sentry a", "sentry: ", "A3-AAAAAA-", "aaaaaaaaaaaaaa.atlasv1.", "authress_aaaaa.", "a_", "AUTH LOGIN ", "334 UGFzc3dvcmQ6", "config set a ", "set a_password ",
    "create secret --from-literal=a=b ", "--from-literal=", "password=a.", "password=a.b", "password=a_(", "password=a-", "password=linux-", "password=/etc/", "password=~/a", "htpasswd -b ",
    "htpasswd -b -c a ", "mkpasswd -m a ", "openssl passwd -a ", "kinit <<< ", "kinit a ", "printf '%s' ", "http -a ", "http a ", "mount ,pass=", "cifs a ", "assword: send ", "user a password ",
    "socks5 a:1 1 ", "mysqladmin a ", "a key ", "123456789012345|", "AAAAAAAAAAAAAAAAAAAA", "keytool a ", "pdftk a ",
    "echo a | passwd ", "echo a ", "echo -n 'a' | ", "| kinit ", "passwd a <<< ", "sudo ", "sudo -S <<< a ", "su <<EOF\na\n", "printf '%s' a | ", "--cert a.pem:", "-E ", "token='root:",
    "Password was reset.\n", "Password was reset.\nNew value: ", "password is ", "password set to: ", "<password>", "<a:password b=\"c\">", "<a key=\"password\">", "<key>password</key><string>", "<a value=\"",
    "stringData:\n  a: ", "kind: Secret\n  a: ", "secrets set a=", "kv put a b=", "USER a\nPASS ", "a LOGIN b ", "PASS ", "\nPASS ", "Passwort von a ", "clé d'a : ", "password,a\n", "password\t", "Secret ID  ",
    "\n  a  ", "credentials (a): b/", "username/password: a/", "setenv a ", "set -x A_PASSWORD ", "changePassword('a', ", "sendline('a')  # ", "login(a, key=", "connect('a', 1, 'b', '", "enter the code ", "passcode ",
    "验证码:", "密码为「", "username a password ", "key 0 ", "createUser a SHA b AES ", "radtest a b c 1 ", "create secret (secret ", "<(echo ", "--key-file <(echo ", "set password for a = ", "'docker', 'login', ",
    "['docker', '-p', ", "a0=\"docker\" a1=\"-p\" ", "password: str = ", "password . ", "password[1] ", "password = string(1) ", "\"A_PASSWORD=a ", "password: |\n  ", "- --password\n- ", "user=a pass=", "Secret Value: ",
    "identified by ", "create user a identified by ", "addauth digest a:", "setAcl a digest:a:", "conn a/", "imp a/", ".logon a/b,", "nmcli a.psk ", "usage: ", "密码 ", "SecureString --value ", "getConnection('jdbc:', '",
    "a,password\nb,", "a,password\n", "password  a\nb  ", "|password|a|\n", "cat /a/secret\n", "cat secret", "echo $A_PASSWORD\n", "pass show a\n", "kubectl get secret a base64 ", "openssl rand a\n", "t1.aaaaaaa.", "gpg -d a\n",
    "password=invalid ", "key: aaa-", "password=a:/etc/", "password: str | ", "password: Optional[", "password: Optional[a], ", "password: a.", "def f(password: a, ", "def f(", "dapi1\n    a1b2c3", "dapi1\n",
    "token HEAD is ", "token git a b ", "token checked out '", "token\n0123456789abcdef0123456789abcdef01234567 (", "token md5 (", "token aId ", "<aId>", "&gt;", "etag: W/",
    "--a-token ", "login --token ms-", "-----BEGIN PGP PUBLIC KEY BLOCK-----\n", "-----BEGIN A PUBLIC KEY-----\nA: ", "md5):  ", "token=sk-xxxx-", "xxxx-", "hf_0000.",
    "password: !vault a/", "password: !vault ", "password: !a", "!secret:get:", "password: !join [a, [b]", "vault:a/", "token class is A", "password AaConfigConfig ",
    "iVBORw0KGgo", "iVBORw0KGgo\n", "iVBORw0KGgo" + "a" * 65 + "\n", "iVBORw0KGgo" + "a" * 65 + "\\n", "embedding=", "token embedding: ",
    "raw_data: \"", "raw_data: \"AAAA\"\n\"", "raw_data: \"A\\", "raw_", "dtype data: \"", "torch_tensor", "dense<\"0xA",
    "LS0tLS1CRUdJTi", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FUR", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FUR/", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FUR\n", "login AAAAC3NzaC1aaaaaaaaaaaaaaaaaaaa", "AAAAC3NzaC1aaaaaaaaaaaaaaaaaaaa+",
    "sha256-", "{/a.key", "/a.key", "/a.key\n", "{\"content\": \"", "{\"content\": \"aB3aB3aB3aB3aB3aB3\" /a.key\" ", "key <(", "key-", "salt pillar.get ", "salt pillar.get a:pass\n", "ImagePull", "token ImagePullBackOff ", "key a/b.c/",
)  # fmt: skip


@pytest.mark.slow
def test_masking_is_linear() -> None:
    """What is quadratic would take half a second."""
    around = (("", " x"), ("password='", "'"))
    for number, part in enumerate(GROWING):
        before, after = around[number % 2]
        text = before + part * (4_000 // len(part)) + after
        # Other processes slow a core down: of three attempts, the fastest counts.
        assert any(_seconds(text) < 0.3 for _ in range(3)), (before, part)


def _seconds(text: str) -> float:
    began = time.process_time()
    presentable(text)
    return time.process_time() - began
