"""The user whose processes a capture looks at: root becomes that user before it opens anything that a rank names.

What a rank says about itself (its environment, its files) is chosen by its user. A capture follows it with that user's
rights only, so it can neither read nor write what the user could not. Of root's capabilities the one to read the
memory of processes is passed on to py-spy, and to nothing else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from hangscope.errors import UsageError
from hangscope.live.agent.hangscope_agent import proc
from hangscope.model.dataclass import dataclass

_PATIENCE = 300.0  # s until a capture as another user is ended: that user can stop it
_KEEPCAPS, _AMBIENT, _RAISE = 8, 47, 2  # of prctl(2)
_SYS_PTRACE, _VERSION = 19, 0x20080522  # of capset(2)


@dataclass(frozen=True, slots=True)
class User:
    """A user as the kernel knows it, with the groups that its process has."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def user_of(pid: int) -> User | None:
    """Return the real user of a process, None where it is gone."""
    try:
        fields = proc.fields_of(f"{pid}/status")
        uid, gid = (int(fields[name].split()[0]) for name in ("Uid", "Gid"))
        return User(uid, gid, tuple(int(word) for word in fields["Groups"].split()))
    except (OSError, KeyError, IndexError, ValueError):
        return None


def owner_of(folder: str) -> User:
    """Return the user to whom a folder belongs. Raises OSError."""
    info = os.stat(folder)
    return User(info.st_uid, info.st_gid)


def make(folder: Path, user: User | None) -> bool:
    """Make a folder, for `user` where one is given, and return whether it was not there. Raises OSError."""
    try:
        folder.mkdir(mode=0o777 if user is None else 0o700)
    except FileExistsError:
        return False
    if user is not None:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(number).st_uid != os.geteuid() or os.listdir(number):
                raise FileExistsError(errno.EEXIST, "it became something else", str(folder))
            os.fchown(number, user.uid, user.gid)
        finally:
            os.close(number)
    return True


def continue_as(user: User) -> None:
    """Continue in a child that is `user`; this process waits for it, ends it if it takes too long, and exits as it does."""
    child = os.fork()
    if not child:
        return _become(user)
    deadline = time.monotonic() + _PATIENCE
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            sys.exit(code if code >= 0 else 128 - code)
        if time.monotonic() > deadline:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.05)


def _become(user: User) -> None:
    """Give up root for good; only programs that are started from here on may still read the memory of processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups(user.groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    for kept in (1 << _SYS_PTRACE, 0):  # a container's root does not have it
        sets = (ctypes.c_uint32 * 6)(0, kept, kept, 0, 0, 0)  # effective, permitted, inheritable; twice
        if libc.capset(header, sets) == 0:
            break
    libc.prctl(_AMBIENT, _RAISE, _SYS_PTRACE, 0, 0)
    if os.geteuid() != user.uid or os.getuid() != user.uid:
        raise UsageError(f"cannot become user {user.uid}", "run this as the user of the job")
