"""What is redacted on request: in every value, by value, and nothing of the report's own words."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hangscope.errors import UsageError
from hangscope.report.masking.redaction import CONTRACT, Redaction
from hangscope.report.masking.walk import change_texts, texts_in
from tests.conftest import FIXTURES, analyze
from tests.json_contract import check_json


def redacted(text: str, *what: str, hosts: tuple[str, ...] = ()) -> str:
    return Redaction([text], what or ("hosts", "paths", "users"), hosts).text(text)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("connect to gpu07.cluster:29500 failed", "gpu07"),
        ("MASTER_ADDR=trainer-a", "trainer-a"),
        ("tcp://login9:29500 refused", "login9"),
        ("remote=[node-x]:4000 closed", "node-x"),
        ("from 10.1.2.3<41234>", "10.1.2.3"),
        ("peer fe80::1ff:fe23:4567:890a%eth0 gone", "fe80"),
        ("at [2001:db8::42]:29500", "2001:db8"),
        ("File '/home/alice/x/train.py', line 3", "alice"),
        ("cwd /home/alice", "alice"),
        ("cwd:/mnt/big/alice/run", "/mnt/big"),
        ("path=/mnt/big/run/x.bin", "/mnt/big"),
        ("open file:///mnt/big/run/x.bin", "/mnt/big"),
        (r"C:\Users\alice\run\train.py", "alice"),
        (r"\\server\share\alice\train.py", "share"),
        ("in src/models/llama.py:12", "src/models"),
        ("user=alice tried", "alice"),
        ("USER: alice", "alice"),
        ("uid=1000(alice)", "alice"),
        ("alice@gpu07:~$ ls", "alice"),
        ("ckpt at /data/alice/last, HOME=/home/alice", "alice"),
        ("connect to GPU07:29500; later gpu07 died", "gpu07"),
        ("nid001234 has exited", "nid001234"),
        ("srun: error: node-a: task 3: Killed", "node-a"),
        ("slurmstepd: error: *** STEP 12.0 ON gpu07 CANCELLED", "gpu07"),
        ("Nodelist=gpu[01-04]", "gpu"),
        ("ip-10-0-1-23 is gone", "10-0-1"),
        ("from ::ffff:10.1.2.3", "1.2.3"),
        ("'/data/my project/train.py'", "my project"),
        ("s3://company-bucket/alice/run", "company-bucket"),
        ("https://gpu07.corp:8080/alice/x.py", "alice"),
        ("outputs/alice_run/step-100", "alice_run"),
        ("//opt//company//x.py", "company"),
        ("UserId=alice(1000)", "alice"),
        ("User alice was not found; HOME=/home/alice", "alice"),
        ("hostname gpuserver died", "gpuserver"),
        ("hostname trainer-a", "trainer-a"),
        ("su alice", "alice"),
        ("su - alice -c run", "alice"),
        ("sudo -u alice run", "alice"),
        ("owner alice", "alice"),
        ("owned by alice", "alice"),
        ("chown alice:users x", "alice"),
        ("uid=1000(alice) gid=1000(alice) groups=1000(alice),27(sudo)", "alice"),
        ("/home/ml-team/alice/run/x.py", "alice"),
        ("/mnt/users/alice", "alice"),
        ("~alice/run", "alice"),
        ("drwxr-xr-x 2 alice users 4096 Nov 1 x", "alice"),
        ("for user alice from the login node", "alice"),
        ("Accepted publickey for alice from", "alice"),
        ("Currently logged in as: alice (team)", "alice"),
        ("{'user': {'name': 'alice'}}", "alice"),
        ('"user": {"name": "alice", "id": 7}', "alice"),
        ("user { name: alice }", "alice"),
        ("user.name=alice", "alice"),
        ("whoami: alice", "alice"),
    ],
)
def test_it_is_gone(text: str, hidden: str) -> None:
    assert hidden not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "Rank 3 never joined all_reduce seq 812 on group 0 at 12:00:00.123",
        "c10d::ProcessGroupNCCL::watchdogHandler at 0x7f01",
        "loss=2.3 at 44.2 it/s, torch 2.7.0+cu128, version 1.2.3",
        "waiting and/or 3/8 done",
        "train.py:412 in maybe_skip_batch",
        "the rank on which all wait hangs in medium",
        "see https://docs.pytorch.org/docs/stable/distributed.html",
        "rank 3 waits on rank7, on step12 and on cuda:0",
        "hostname resolution failed, the hostname is unknown",
        "owner rank 3, the owner of the lock",
        "user code failed as user defined",
        "login failed by user function, ~5 GB",
    ],
)
def test_what_is_none_of_them_stays(text: str) -> None:
    assert redacted(text, hosts=("gpu07",)) == text


def test_a_host_may_be_called_as_any_word(tmp_path: Path) -> None:
    """`hang`, `rank` and `medium` are words of the report and of its keys."""
    folder = tmp_path / "job"
    shutil.copytree(FIXTURES / "raising_rank_torchrun" / "dumps", folder)
    plain = analyze(folder)
    hosts = ("hang", "rank", "medium", "high", "rank3", "gpu07.cluster")
    data = plain.to_dict()
    view = change_texts(data, Redaction(texts_in(data), ("hosts",), hosts).text, CONTRACT)
    for key in ("status", "schema", "headline"):
        assert view[key] == plain.to_dict()[key]
    assert view["verdict"].keys() == plain.to_dict()["verdict"].keys()
    assert view["verdict"]["confidence"] == plain.to_dict()["verdict"]["confidence"]
    assert (
        redacted("on host rank it hangs; rank 3 on rank", "hosts", hosts=("rank",))
        == "on host host-1 it hangs; rank 3 on host-1"
    )
    row = {"rank": 0, "host": "rank"}
    assert change_texts(row, Redaction((), ("hosts",), ("rank",)).text) == {"rank": 0, "host": "host-1"}


def test_one_word_is_one_kind_to_redact(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot redact foo"):
        analyze(tmp_path, redact="foo")


def test_the_library_is_redacted_too() -> None:
    folder = FIXTURES / "raising_rank_torchrun" / "dumps"
    plain, hidden = analyze(folder), analyze(folder, redact=["hosts", "paths", "users"])
    check_json(hidden.to_json())
    assert plain.verdict is not None and hidden.verdict is not None
    assert "/workspace" in repr(plain.verdict) + str(plain.table["file"].unique())
    assert "/workspace" not in repr(hidden.verdict) + str(hidden.table["file"].unique())
    assert (
        hidden.verdict.cause == plain.verdict.cause
        and hidden.verdict.fingerprint == plain.verdict.fingerprint
    )
    assert len(hidden.table) == len(plain.table)
    for output in (hidden.to_text(verbose=True), hidden.to_markdown(), hidden.to_html(), hidden.to_json()):
        assert "/workspace" not in output


def test_the_verdict_of_the_library_holds_no_secret(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "/workspace/train.py", line 3, in <module>\n    main()\n'
        "RuntimeError: login failed: password=abcdef7xyz\n"
    )
    report = analyze(log)
    assert (
        report.verdict is not None and "abcdef7" not in repr(report.verdict) and "***" in repr(report.verdict)
    )


def test_the_last_lines_of_a_log_are_masked_and_redacted_like_everything_else(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "stuck_lock" / "dumps", tmp_path / "job")
    log = next((tmp_path / "job").rglob("rank1.out"))
    with open(log, "a", encoding="utf-8") as stream:
        stream.write(
            "saving to /mnt/big/alice/ckpt on gpu07.cluster:29500\nHF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345\n"
        )
    report = analyze(tmp_path / "job", redact=["hosts", "paths", "users"])
    page = report.document.page
    assert page is not None
    told = next(row.log for row in page.detail.ranks if row.ranks == "1")
    assert told[-2].startswith("saving to ckpt on host-") and "***" in told[-1]
    for secret in ("/mnt/big", "gpu07", "hf_AbCd"):
        assert secret not in report.to_html() + str(told)
