"""What became of a request: bytes in their places, wrong ones, or a refusal."""

from typing import Any, NamedTuple

from nixl_engine import Blocks, Engine
from nixl_landing import assert_landed, assert_untouched, bytes_posted
from nixl_pair import DECODE_BLOCKS, PREFILL_BLOCKS, transfer


class Outcome(NamedTuple):
    """A request's end, in bytes and in words."""

    error: BaseException | None
    """What refused it, or what is wrong with the bytes; None where all of them are right."""
    text: str
    """`served`, `refused: …`, or `wrong bytes`."""
    bytes_moved: int
    """Bytes of the transfers that the ranks posted."""
    bytes_landed: int
    """Bytes of decode caches that had to come from prefill caches."""
    bytes_checked: int
    """Bytes compared: all of the caches of both engines."""


def attempt(
    prefill: Engine, decode: Engine, prefill_blocks: Blocks = PREFILL_BLOCKS, decode_blocks: Blocks = DECODE_BLOCKS
) -> Outcome:
    """Serve a request and compare every byte; where it is refused no byte may have changed and none been posted."""
    try:
        transfer(prefill, decode, prefill_blocks, decode_blocks)
    except (AssertionError, RuntimeError) as error:
        refused = error
    else:
        return _compared(prefill, decode, prefill_blocks, decode_blocks)
    moved = bytes_posted(prefill, decode)
    assert not moved, f"{moved} bytes were posted before the refusal: {refused}"
    return Outcome(refused, f"refused: {_first_words(refused)}", 0, 0, assert_untouched(prefill, decode))


def _compared(prefill: Engine, decode: Engine, prefill_blocks: Blocks, decode_blocks: Blocks) -> Outcome:
    moved = bytes_posted(prefill, decode)
    try:
        landed = assert_landed(prefill, decode, prefill_blocks, decode_blocks)
    except AssertionError as wrong:
        return Outcome(wrong, "wrong bytes", moved, 0, 0)
    return Outcome(None, "served", moved, landed.bytes_landed, landed.bytes_checked)


def raise_if(outcome: Outcome) -> None:
    """Raise what went wrong, if anything did."""
    if outcome.error:
        raise outcome.error


def record(outcome: Outcome, prefill: Engine, decode: Engine, heads: str, note: Any) -> None:
    """Write the outcome down, with pytest's `record_property`, for the table that is made of them."""
    note("prefill TP", prefill.tp)
    note("decode TP", decode.tp)
    note("heads", heads)
    note("mode", "push" if prefill.push else "pull")
    note("bytes moved", outcome.bytes_moved)
    note("bytes checked", outcome.bytes_checked)
    note("outcome", outcome.text)


def _first_words(error: BaseException, most: int = 100) -> str:
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return text if len(text) <= most else f"{text[: most - 1]}…"
