"""Packs give the report that their files give, and are read with the same distrust; so are remote and compressed files."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
import sys
import tempfile
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hangscope
from hangscope.errors import NoInputError, UsageError
from hangscope.export.pack import pack
from hangscope.ingest.recorder import pack_file
from hangscope.ingest.workers import reader
from tests.conftest import FIXTURES, Run, analyze

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from dump_generator import Job, generate

pytestmark = pytest.mark.slow

REAL = ["raising_rank_torchrun", "mesh_opposite_order"]


def told(report: hangscope.Report, prefix: str = "") -> dict[str, Any]:
    """Return what a report says, with the name of a pack taken out of the files it names."""
    view = json.loads(report.to_json().replace(prefix, ""))
    view.pop("inputs")
    return {key: value for key, value in view.items() if key != "coverage"}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return the dumps of a node of eight ranks."""
    folder = tmp_path / "node"
    generate(folder, Job(8, entries=300, layout="world"))
    return folder


@pytest.mark.parametrize("name", REAL)
def test_a_pack_gives_the_report_of_its_files(name: str, tmp_path: Path) -> None:
    dumps = FIXTURES / name / "dumps"
    packed = pack([dumps], tmp_path / "a.hangpack")
    assert packed.files == sum(1 for path in dumps.rglob("*") if path.is_file())
    assert told(analyze(tmp_path / "a.hangpack"), "a.hangpack/") == told(analyze(dumps))


@pytest.mark.parametrize("name", ["node.tar.gz", "node.zip", "node.html", "packed"])
def test_a_pack_is_read_whatever_its_name(name: str, inside: Run, tmp_path: Path) -> None:
    dumps = FIXTURES / "rank_conditional_barrier" / "dumps"
    made = inside("pack", dumps, "-o", tmp_path / name)
    assert made.returncode == 0
    archive = name.endswith((".gz", ".zip"))
    assert ("a pack and no archive" in made.stderr) == archive
    assert told(analyze(tmp_path / name), f"{name}/") == told(analyze(dumps))


def test_packs_of_nodes_and_loose_files_make_one_incident(tmp_path: Path) -> None:
    generate(tmp_path / "all", Job(24, entries=100, layout="world"))
    whole = analyze(tmp_path / "all").verdict
    for rank, path in enumerate(
        sorted((tmp_path / "all").iterdir(), key=lambda p: int(p.name.rsplit("_", 1)[1]))
    ):
        (tmp_path / f"node{rank // 8}").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / f"node{rank // 8}")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for number in (0, 1):
        pack([tmp_path / f"node{number}"], mixed / f"node{number}.hangpack")
    shutil.move(tmp_path / "node2", mixed)
    verdict = hangscope.analyze(mixed, jobs=2).verdict
    assert whole is not None and verdict is not None
    assert (verdict.cause, verdict.culprit_ranks, verdict.waiting_ranks) == (
        whole.cause,
        whole.culprit_ranks,
        whole.waiting_ranks,
    )
    assert verdict.culprit_ranks == (15,)


def test_a_pack_of_a_node_is_small(tmp_path: Path) -> None:
    generate(tmp_path / "node", Job(8, layout="mesh"))
    packed = pack([tmp_path / "node"], tmp_path / "node.hangpack")
    assert packed.bytes_before > 30 * packed.bytes_after


def test_a_pack_of_the_same_files_is_the_same_bytes(node: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        pack([node], tmp_path / name / "n.hangpack", jobs=1 if name == "one" else 2)
    assert (tmp_path / "one" / "n.hangpack").read_bytes() == (tmp_path / "two" / "n.hangpack").read_bytes()


def test_a_pack_beside_its_files_is_not_packed_again_and_a_pack_of_packs_is_flat(
    node: Path, tmp_path: Path
) -> None:
    assert pack([node], node / "node.hangpack").files == 8
    assert pack([node], node / "node.hangpack").files == 8
    outer = pack([node / "node.hangpack"], tmp_path / "all.hangpack")
    assert outer.files == 1
    names = [entry[0] for entry in entries(tmp_path / "all.hangpack")]
    assert names == [f"node.hangpack/nccl_trace_rank_{rank}" for rank in range(8)]
    assert told(analyze(tmp_path / "all.hangpack"), "node.hangpack/") == told(
        analyze(sorted(node.glob("nccl*")))
    )


def entries(path: Path) -> list[pack_file.Entry]:
    """Return what a pack holds."""
    with path.open("rb") as stream:
        return list(pack_file.read_pack(stream))


def test_the_command_packs_and_refuses_to_overwrite_what_is_no_pack(
    node: Path, tmp_path: Path, inside: Run
) -> None:
    target = tmp_path / "node.hangpack"
    done = inside("pack", node, "-o", target)
    assert done.returncode == 0 and f"Wrote {target}: 8 files" in done.stderr and done.stdout == ""
    assert inside("pack", node, "-o", target, "-q").stderr == ""
    target.write_text("notes")
    refused = inside("pack", node, "-o", target)
    assert refused.returncode == 2 and "is no pack" in refused.stderr and target.read_text() == "notes"
    assert inside("pack", node, "-o", target, "--force").returncode == 0
    assert (
        target.read_bytes().startswith(b"\x89hangscope.pack 4\n")
        and [p.name for p in tmp_path.iterdir() if p.name[0] == "."] == []
    )


def test_there_must_be_something_to_pack(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoInputError):
        pack([tmp_path / "empty"], tmp_path / "a.hangpack")
    with pytest.raises(UsageError):
        pack([tmp_path / "missing"], tmp_path / "a.hangpack")


def test_cut_and_foreign_files_are_notes(node: Path, tmp_path: Path) -> None:
    pack([node], tmp_path / "n.hangpack")
    data = (tmp_path / "n.hangpack").read_bytes()
    for number, cut in enumerate((5, 100, len(data) // 2, len(data) - 1)):
        (node / f"cut{number}.hangpack").write_bytes(data[:cut])
    (node / "tokens.parquet").write_bytes(b"PAR1" + bytes(range(256)) + b"PAR1")
    (node / "newer.hangpack").write_bytes(data.replace(b"pack 4\n", b"pack 99\n", 1))
    report = analyze(node)
    assert report.verdict is not None and report.verdict.culprit_ranks == (5,)
    codes = {note.file: note.code for note in report.warnings}
    assert {codes[f"cut{number}.hangpack"] for number in range(4)} == {"corrupt"}
    assert "version 99" in next(note.message for note in report.warnings if note.file == "newer.hangpack")
    assert "tokens.parquet" not in codes


class Touch:
    """Makes a file where it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("owned"),)


def with_column(name: str, change: Callable[[bytes], object]) -> Callable[[dict[str, Any]], object]:
    """Return what changes one column of a row."""
    return lambda row: row["columns"].update({name: change(row["columns"][name])})


FORGERIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "indexes": with_column("kind", lambda column: b"\x63\0\0\0" * (len(column) // 4)),
    "lengths": with_column("created", lambda column: column[:-8]),
    "half a number": with_column("created", lambda column: column[:-1]),
    "largest": with_column("created", lambda column: b"\x7f" * len(column)),
    "types": with_column("kind", list),
    "reference": lambda row: row.update(like=7),
    "answer": lambda row: row.update(answer=Touch()),
    "kinds": lambda row: row.update(
        calls=pickle.dumps(([(["no text"], "", (), (), (), (), None, None, 0, None)], []))
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_pack_is_refused(
    forgery: str, node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pack([node], tmp_path / "n.hangpack")
    with (tmp_path / "n.hangpack").open("rb") as stream:
        rows = list(pack_file.read_rows(stream))
    FORGERIES[forgery](rows[0])
    with (node / "forged.hangpack").open("wb") as out:
        pack_file.write_rows(out, rows)
    answer = reader.read_file(str(node / "forged.hangpack"), "forged.hangpack")
    assert answer["status"] == "failed" or answer["files"][0][2]["status"] == "failed"
    assert not (tmp_path / "owned").exists()
    assert analyze([node]).verdict is not None


def test_a_message_that_claims_to_be_endless_is_refused(tmp_path: Path) -> None:
    packed = zlib.compress((2**60).to_bytes(8, "little") + bytes(2**20))
    (tmp_path / "long.hangpack").write_bytes(b"\x89hangscope.pack 4\n" + packed)
    answer = reader.read_file(str(tmp_path / "long.hangpack"), "long.hangpack")
    assert answer["status"] == "failed" and "message" in answer["reason"]


def test_numbers_come_back_as_they_were() -> None:
    for numbers in ([], [5], [3, 2**62, -(2**62), 0, 7], list(range(0, 10**6, 997))):
        for code in ("q", "i", "b"):
            kept = array(code, [n % 100 for n in numbers] if code != "q" else numbers).tobytes()
            assert pack_file._unpacked(code, pack_file._packed(code, kept)) == kept


def test_gzip_and_zstd_dumps_are_read_as_they_are(node: Path, tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    plain = analyze(node)
    for path in list(node.iterdir())[::2]:
        (node / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    rest = next(path for path in node.iterdir() if path.suffix != ".gz")
    (node / f"{rest.name}.zst").write_bytes(zstandard.compress(rest.read_bytes()))
    rest.unlink()
    report = hangscope.analyze(node, jobs=2)
    assert not report.warnings
    assert report.verdict is not None and plain.verdict is not None
    assert report.verdict.fingerprint == plain.verdict.fingerprint
    assert report.verdict.culprit_ranks == plain.verdict.culprit_ranks


@pytest.fixture
def bucket(node: Path) -> Iterator[Any]:
    """Return a remote file system that holds the dumps of a node below /job-17."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    for path in node.iterdir():
        memory.pipe(f"/job-17/dumps/{path.name}", path.read_bytes())
    yield memory
    memory.rm("/job-17", recursive=True)


def test_a_remote_folder_is_read_through_fsspec(node: Path, bucket: Any) -> None:
    assert told(analyze("memory://job-17/dumps")) == told(analyze(node))
    (one,) = analyze("memory://job-17/dumps/nccl_trace_rank_3").to_dict()["inputs"]
    assert (one["file"], one["rank"], one["status"]) == ("nccl_trace_rank_3", 3, "used")


def test_an_executor_opens_remote_files_itself(node: Path, bucket: Any) -> None:
    with ThreadPoolExecutor(2) as executor:
        report = hangscope.analyze("memory://job-17/dumps", executor=executor)
    assert told(report) == told(analyze(node))


def test_a_remote_archive_is_unpacked(node: Path, bucket: Any, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "node"), "gztar", node)
    bucket.pipe("/job-17/node.tar.gz", Path(archive).read_bytes())
    report = analyze("memory://job-17/node.tar.gz")
    assert report.verdict is not None and report.verdict.culprit_ranks == (5,)
    assert {row["file"].split("!/")[0] for row in report.to_dict()["inputs"]} == {"node.tar.gz"}


@pytest.mark.parametrize(
    "url",
    [
        "zip://::file://{zip}",
        "simplecache::file://{node}",
        "simplecache::zip://::file://{zip}",
        "file://{node}/nccl_*",
    ],
)
def test_chained_urls_and_patterns(node: Path, tmp_path: Path, url: str) -> None:
    pytest.importorskip("fsspec")
    archive = shutil.make_archive(str(tmp_path / "node"), "zip", node)
    report = analyze(url.format(zip=archive, node=node))
    assert report.verdict is not None and report.verdict.culprit_ranks == (5,)
    assert {row["file"] for row in report.to_dict()["inputs"]} >= {"nccl_trace_rank_3"}


def test_remote_files_are_fetched_in_parallel_and_let_go(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more copies lie on the disk than are being read, and a file that cannot be fetched costs only itself."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    together = threading.Barrier(4)  # breaks, and fails all fetches, unless four of them run at a time
    plain = type(bucket).get_file

    def slowly(self: Any, name: str, *rest: Any) -> Any:
        if name.endswith("rank_2"):
            raise PermissionError("Access Denied")
        if int(name[-1]) > 3:
            together.wait(20)
        return plain(self, name, *rest)

    monkeypatch.setattr(type(bucket), "get_file", slowly)
    report = hangscope.analyze("memory://job-17/dumps", jobs=1)
    (warning,) = (w for w in report.warnings if w.file)
    assert (warning.file, warning.code) == ("nccl_trace_rank_2", "unreadable")
    assert "Access Denied" in warning.message
    assert report.verdict is not None and report.verdict.culprit_ranks == (5,)
    assert not list(tmp_path.glob("hangscope-*"))


@pytest.mark.parametrize("url", ["memory://no-such-folder", "no-such-protocol://x"])
def test_a_wrong_url_is_one_message(url: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UsageError, match=r"there is nothing at|cannot be listed"):
        hangscope.analyze(url)
