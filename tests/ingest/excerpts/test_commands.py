"""Commands that a text shows, and where the same command prints something else on another host."""

from __future__ import annotations

from hangscope.ingest.excerpts.commands import Output, commands


def test_lines_that_two_hosts_print_differently_are_found() -> None:
    run, unlike, outputs = commands(
        ["gpu-b06 $ ulimit -l", "unlimited", "gpu-b07 $ ulimit -l", "64", "", "step 3 $ done"]
    )
    assert run[0] == "ulimit -l"
    assert [(u.command, u.one, u.other) for u in unlike] == [
        ("ulimit -l", ("gpu-b06", "unlimited"), ("gpu-b07", "64"))
    ]
    assert outputs == (Output("ulimit -l", ("unlimited",)), Output("ulimit -l", ("64",)))


def test_numbers_of_a_table_may_vary() -> None:
    _, unlike, _ = commands(
        ["root@n01:~$ free -g", "Mem: 1007 21 940", "root@n02:~$ free -g", "Mem: 1007 19 951"]
    )
    assert unlike == ()


def test_one_host_alone_compares_with_nobody() -> None:
    assert commands(["n01 $ df -h /dev/shm", "shm 64M 61M", "n01 $ df -h /dev/shm", "shm 64M 12M"])[1] == ()
