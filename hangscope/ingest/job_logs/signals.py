"""Signals by their names, and by the words that shells and launchers print for them."""

from __future__ import annotations

import signal

#: the C library's words for SIGKILL in German, Russian, French, Spanish, Italian, Chinese, Japanese and Korean
KILLED_ABROAD = (
    "Getötet", "Убито", "Processus arrêté", "Terminado (killed)", "Ucciso ", "已杀死", "強制終了", "죽었음",
)  # fmt: skip
WORDS = {
    "Killed": -9,
    "Terminated": -15,
    "Aborted": -6,
    "Segmentation fault": -11,
    "Bus error": -7,
    "Floating point exception": -8,
    "Out Of Memory": -9,
}


def signal_name(code: int | None) -> str | None:
    """Return SIGKILL for -9 (and for a shell's 137), None for what is no signal."""
    number = -code if code is not None and code < 0 else (code or 0) - 128 if is_shells(code or 0) else 0
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def is_shells(code: int) -> bool:
    """Return whether an exit code is a shell's word for a signal: 128 + n."""
    return 128 < code < 128 + 32
