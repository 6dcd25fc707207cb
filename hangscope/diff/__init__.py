"""Two reports compared: the same bug or not, and in what they differ."""

from hangscope.diff.comparison import Comparison, compare
from hangscope.diff.loading import load

__all__ = ["Comparison", "compare", "load"]
