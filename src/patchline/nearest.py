"""The nearest legal name, for messages about a wrong one."""

from __future__ import annotations

from collections.abc import Iterable


def hint(word: str, legal: Iterable[str]) -> str:
    """`did you mean 'x'?` for the legal name nearest to `word`, else the list of legal names."""
    from difflib import get_close_matches

    names = sorted(set(legal))
    near = get_close_matches(word, names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"one of: {', '.join(names)}"
