"""Which line of the user's code issued a collective, and whether a rank exited the loop that its peers are still in.

Frames of torch, the standard library and installed packages are not the user's; the deepest user frame is the one to show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

from hangscope.ingest.lines.vocabulary import words
from hangscope.model.incident import CallKind, Frame, Stack
from hangscope.model.regex import regex

_PACKAGE = regex(r"/(?:site|dist)-packages/([^/]{1,200})(?:/|$)")
_BACKWARD = regex(r"^_engine_run_backward$|^backward$|^run_backward$|^grad$")
COLLECTIVES = ("distributed_c10d.py", "c10d_logger.py", "_functional_collectives.py")
_RENDEZVOUS = "torch/distributed/rendezvous.py"
_GRADIENT_OPS = frozenset({"all_reduce", "reduce_scatter", "reduce_scatter_tensor", "reduce"})


def is_user(frame: Frame) -> bool:
    """Return whether a frame is the user's code, not torch's, the standard library's or an installed package's."""
    return _is_users(frame.file)


@lru_cache(maxsize=65536)
def _is_users(file: str) -> bool:
    from hangscope.knowledge.loading import common_packages  # which knows frames by functions of this module

    file = file.replace("\\", "/")
    package, shortened, _ = file.partition("/")
    if shortened and package in common_packages():
        return False  # py-spy shortens paths to what follows an entry of sys.path
    return not any(
        words(files).search(file) for files in ("native_files", "library_files", "shortened_files")
    )


@lru_cache(maxsize=65536)
def user_frames(stack: Stack) -> Stack:
    """Return the user's frames, innermost first; where there are none, those of installed code that is no known library."""
    return tuple(f for f in stack if is_user(f)) or tuple(f for f in stack if _is_installed(f))


@lru_cache(maxsize=65536)
def _is_installed(frame: Frame) -> bool:
    """Return whether a frame is code that somebody installed: in site-packages, and of no library that is known."""
    from hangscope.knowledge.loading import known_packages  # which knows frames by functions of this module

    found = _PACKAGE.search(frame.file.replace("\\", "/"))
    return found is not None and found.group(1).removesuffix(".py") not in known_packages()


def user_frame(stack: Stack) -> Frame | None:
    """Return the deepest user frame, or None: the first of `user_frames`, without computing the others."""
    return next(chain(filter(is_user, stack), filter(_is_installed, stack)), None)


@lru_cache(maxsize=65536)
def runs_backward(kind: CallKind) -> bool:
    """Return whether autograd's backward pass itself issued a collective, and not a user's function that it runs."""
    inner = next((f for f in kind.stack if is_user(f) or _BACKWARD.match(f.name)), None)
    return inner is not None and not is_user(inner)


def is_gradient(kind: CallKind, frames_recorded: bool) -> bool:
    """Return whether a call is a gradient reduction.

    Either its stack runs through autograd, or it has none although the recorder kept frames elsewhere: on GPUs, DDP and
    FSDP reduce from autograd's device thread, which has no Python frames. They reduce flat buckets.
    """
    if kind.op not in _GRADIENT_OPS:
        return False
    flat = all(len(size) == 1 for size in kind.input_sizes)
    return runs_backward(kind) or (not kind.stack and frames_recorded and not kind.told and flat)


def calls_collectives(frame: Frame) -> bool:
    """Return whether the innermost frame of a stack is a torch function in which C++ issues collectives."""
    return bool(words("into_cpp").search(frame.name)) and not is_user(frame)


@lru_cache(maxsize=65536)
def of_equal_sizes(stack: Stack) -> bool:
    """Return whether DDP, FSDP or autograd itself issued a collective: it is of one size on all ranks."""
    first = next((f for f in stack if not f.file.endswith(COLLECTIVES)), None)
    return first is not None and words("parameter_files").search(first.file) is not None


@lru_cache(maxsize=65536)
def waits_for_a_lock(stack: Stack) -> bool:
    """Return whether a native stack ends in a wait for the interpreter or another lock, and not in a call of the device or of others."""
    native = [frame.name for frame in stack if not frame.file.endswith(".py")]
    return any(map(words("locks").search, native[:4])) and not any(map(words("communicates").search, native))


@lru_cache(maxsize=65536)
def forms_a_group(stack: Stack) -> bool:
    """Return whether a stack is where ranks wait for each other to form a group: in torch's rendezvous, its store, or NCCL's start."""
    return any(
        not is_user(f) and (words("forms_a_group").search(f.name) or f.file.endswith(_RENDEZVOUS))
        for f in stack
    )


def in_constructor(kind: CallKind) -> bool:
    """Return whether DDP's constructor issued a collective (its parameter check and first broadcast)."""
    return any(words("constructing").search(frame.name) for frame in kind.stack)


_AUTOGRAD = ("torch/autograd/__init__.py", "torch/autograd/graph.py")


def in_backward(stack: Stack) -> bool:
    """Return whether a thread waits for autograd's threads, whose work shows no frame here: the gradients' reduction among others."""
    return bool(stack) and stack[0].file.endswith(_AUTOGRAD)


def within_backward(stack: Stack) -> bool:
    """Return whether a stack is anywhere within a backward pass, in a function of the user's as well."""
    return any(frame.file.endswith(_AUTOGRAD) for frame in stack)


def first_difference(own: Stack, peer: Stack) -> tuple[Frame, Frame] | None:
    """Return the outermost frames, one of each stack, at which the two part; None where one contains the other."""
    ways = zip(reversed(own), reversed(peer), strict=False)
    return next(((a, b) for a, b in ways if a != b), None)


def shared_line(own: Stack, peer: Stack) -> tuple[Frame, Frame] | None:
    """Return the user's frames in the deepest function that two stacks share with different lines, or None."""
    parted = first_difference(user_frames(own), user_frames(peer))
    same = parted is not None and (parted[0].name, parted[0].file) == (parted[1].name, parted[1].file)
    return parted if same else None


def loop_lines(function: Frame, history: Iterable[Stack]) -> list[int]:
    """Return the lines of one function that issued collectives more than once, ascending: the lines of its loop."""
    place = (function.name, function.file)
    inside = ([frame.line for frame in stack if (frame.name, frame.file) == place][:1] for stack in history)
    return sorted(line for line, count in Counter(chain(*inside)).items() if count > 1)


def position_to_loop(own: Stack, peer: Stack, history: list[Stack]) -> tuple[str, Frame] | None:
    """Return (`inside`, `beyond` or `before`, the outlier's frame) relative to the loop that the peers are in.

    None if the stacks share no function, if the shared one has no repeated line, or if the peers are past the outlier and
    it is past the loop.
    """
    shared = shared_line(own, peer)
    lines = loop_lines(shared[0], history) if shared is not None else []
    if shared is None or not lines or lines[-1] < shared[0].line < shared[1].line:
        return None
    where = "beyond" if shared[0].line > lines[-1] else "before" if shared[0].line < lines[0] else "inside"
    return where, shared[0]
