"""The independent model of KV heads: against tables worked out by hand, and against memory labelled byte by byte."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchline import kv_heads
from patchline.kv_heads import Cut, Layer, Side, block_bytes, bytes_per_token, cuts, held, holders, refusal, writes

SLIDING = Layer(16, 256, "sliding")
GLOBAL = Layer(4, 512)
GEMMA = [GLOBAL if at % 6 == 5 else SLIDING for at in range(60)]
LLAMA = [Layer(8, 128)] * 80
MLA = Layer(1, 576, "mla")
BF16 = 2
TPS = [1, 2, 4, 8, 16]

repeatable = settings(deadline=None, derandomize=True, max_examples=300)


# Tables worked out by hand. bf16, 64 tokens a block: one sliding head of a block is 64 * 2 * 256 * 2 = 65536 bytes,
# one global head 64 * 2 * 512 * 2 = 131072, the number in the brief's error message.


@pytest.mark.parametrize(
    ("rank", "heads", "cut"),
    [
        (0, [0, 1], Cut((0,), 0, 0, 0, 0, 131072)),
        (1, [2, 3], Cut((0,), 0, 131072, 0, 0, 131072)),
        (2, [4, 5], Cut((1,), 0, 0, 0, 0, 131072)),
        (3, [6, 7], Cut((1,), 0, 131072, 0, 0, 131072)),
        (4, [8, 9], Cut((2,), 0, 0, 0, 0, 131072)),
        (5, [10, 11], Cut((2,), 0, 131072, 0, 0, 131072)),
        (6, [12, 13], Cut((3,), 0, 0, 0, 0, 131072)),
        (7, [14, 15], Cut((3,), 0, 131072, 0, 0, 131072)),
    ],
)
def test_gemma_sliding_layers_tp4_to_tp8(rank: int, heads: list[int], cut: Cut) -> None:
    assert list(held(SLIDING, 8, rank)) == heads
    assert cuts(SLIDING, Side(4, 64), Side(8, 64), rank, itemsize=BF16) == [cut]


@pytest.mark.parametrize(
    ("rank", "head", "source"),
    [(0, 0, 0), (1, 0, 0), (2, 1, 1), (3, 1, 1), (4, 2, 2), (5, 2, 2), (6, 3, 3), (7, 3, 3)],
)
def test_gemma_global_layers_tp4_to_tp8(rank: int, head: int, source: int) -> None:
    assert list(held(GLOBAL, 8, rank)) == [head]
    assert cuts(GLOBAL, Side(4, 64), Side(8, 64), rank, itemsize=BF16) == [Cut((source,), 0, 0, 0, 0, 131072)]


@pytest.mark.parametrize(
    ("rank", "heads", "cut"),
    [
        (0, [0, 1, 2, 3], Cut((0,), 0, 0, 0, 0, 262144)),
        (1, [4, 5, 6, 7], Cut((0,), 0, 262144, 0, 0, 262144)),
        (2, [8, 9, 10, 11], Cut((1,), 0, 0, 0, 0, 262144)),
        (3, [12, 13, 14, 15], Cut((1,), 0, 262144, 0, 0, 262144)),
    ],
)
def test_gemma_sliding_layers_tp2_to_tp4(rank: int, heads: list[int], cut: Cut) -> None:
    assert list(held(SLIDING, 4, rank)) == heads
    assert cuts(SLIDING, Side(2, 64), Side(4, 64), rank, itemsize=BF16) == [cut]


@pytest.mark.parametrize(
    ("rank", "cut"),
    [
        (0, Cut((0,), 0, 0, 0, 0, 131072)),
        (1, Cut((0,), 0, 131072, 0, 0, 131072)),
        (2, Cut((1,), 0, 0, 0, 0, 131072)),
        (3, Cut((1,), 0, 131072, 0, 0, 131072)),
    ],
)
def test_gemma_global_layers_tp2_to_tp4(rank: int, cut: Cut) -> None:
    assert list(held(GLOBAL, 4, rank)) == [rank]
    assert cuts(GLOBAL, Side(2, 64), Side(4, 64), rank, itemsize=BF16) == [cut]


def test_a_second_block_is_cut_like_the_first() -> None:
    assert cuts(SLIDING, Side(4, 64), Side(8, 64), 5, blocks=2, itemsize=BF16) == [
        Cut((2,), 0, 131072, 0, 0, 131072),
        Cut((2,), 1, 131072, 1, 0, 131072),
    ]


def test_prefill_rank_n_is_read_by_decode_ranks_2n_and_2n_plus_1() -> None:
    whole, first, second = (Cut((3,), 0, offset, 0, 0, 131072) for offset in (0, 0, 131072))
    assert writes(GLOBAL, Side(4, 64), Side(8, 64), 3, itemsize=BF16) == [(6, whole), (7, whole)]
    assert writes(SLIDING, Side(4, 64), Side(8, 64), 3, itemsize=BF16) == [(6, first), (7, second)]


def test_of_several_holders_the_lowest_writes() -> None:
    cut = Cut((2, 3), 0, 0, 0, 0, 131072)
    assert writes(GLOBAL, Side(8, 64), Side(4, 64), 2, itemsize=BF16) == [(1, cut)]
    assert writes(GLOBAL, Side(8, 64), Side(4, 64), 3, itemsize=BF16) == []


@pytest.mark.parametrize(
    ("layer", "sizes"),
    [
        (SLIDING, [1048576, 524288, 262144, 131072, 65536]),
        (GLOBAL, [524288, 262144, 131072, 131072, 131072]),
        (MLA, [73728, 73728, 73728, 73728, 73728]),
    ],
)
def test_bytes_of_a_block(layer: Layer, sizes: list[int]) -> None:
    assert [block_bytes(layer, Side(tp, 64), BF16) for tp in TPS] == sizes


def test_the_failure_on_a_cpu_names_this_many_bytes() -> None:
    """A model with 2 global heads of 64, float32, blocks of 32 tokens: `remote P KV block_len 16384`."""
    assert [block_bytes(Layer(2, 64), Side(tp, 32), 4) for tp in (2, 4)] == [16384, 16384]


@pytest.mark.parametrize(
    ("tp", "heads"),
    [
        (1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (4, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (8, [[0], [1], [2], [3], [4], [5], [6], [7]]),
        (16, [[0], [0], [1], [1], [2], [2], [3], [3], [4], [4], [5], [5], [6], [6], [7], [7]]),
    ],
)
def test_llama_70b_heads(tp: int, heads: list[list[int]]) -> None:
    assert [list(held(LLAMA[0], tp, rank)) for rank in range(tp)] == heads


@pytest.mark.parametrize(
    ("prefill", "decode", "rank", "expected"),
    [  # 16 tokens a block: one head of a block is 16 * 2 * 128 * 2 = 8192 bytes
        (1, 1, 0, [Cut((0,), 0, 0, 0, 0, 65536)]),
        (1, 8, 6, [Cut((0,), 0, 49152, 0, 0, 8192)]),
        (1, 16, 13, [Cut((0,), 0, 49152, 0, 0, 8192)]),
        (2, 8, 5, [Cut((1,), 0, 8192, 0, 0, 8192)]),
        (4, 16, 7, [Cut((1,), 0, 8192, 0, 0, 8192)]),
        (8, 16, 15, [Cut((7,), 0, 0, 0, 0, 8192)]),
        (16, 16, 5, [Cut((4, 5), 0, 0, 0, 0, 8192)]),
        (16, 8, 3, [Cut((6, 7), 0, 0, 0, 0, 8192)]),
        (16, 4, 1, [Cut((4, 5), 0, 0, 0, 0, 8192), Cut((6, 7), 0, 0, 0, 8192, 8192)]),
        (4, 2, 1, [Cut((2,), 0, 0, 0, 0, 16384), Cut((3,), 0, 0, 0, 16384, 16384)]),
        (2, 1, 0, [Cut((0,), 0, 0, 0, 0, 32768), Cut((1,), 0, 0, 0, 32768, 32768)]),
    ],
)
def test_llama_70b_cuts(prefill: int, decode: int, rank: int, expected: list[Cut]) -> None:
    assert cuts(LLAMA[0], Side(prefill, 16), Side(decode, 16), rank, itemsize=BF16) == expected


@pytest.mark.parametrize(
    ("layers", "kib"),
    [
        (LLAMA, [320, 160, 80, 40, 40]),
        (GEMMA, [880, 440, 220, 120, 70]),
        ([MLA] * 64, [72, 72, 72, 72, 72]),
    ],
)
def test_bytes_per_token_and_gpu(layers: list[Layer], kib: list[int]) -> None:
    assert [bytes_per_token(layers, tp, BF16) / 1024 for tp in TPS] == kib


@pytest.mark.parametrize(
    ("tp", "head", "ranks"),
    [(1, 3, (0,)), (2, 1, (0,)), (2, 2, (1,)), (4, 3, (3,)), (8, 2, (4, 5)), (16, 0, (0, 1, 2, 3))],
)
def test_holders_of_a_global_head(tp: int, head: int, ranks: tuple[int, ...]) -> None:
    assert holders(GLOBAL, tp, head) == ranks


def test_every_rank_holds_the_latent_vector() -> None:
    assert [held(MLA, 4, rank) for rank in range(4)] == [range(1)] * 4
    assert cuts(MLA, Side(2, 64), Side(4, 64), 3, itemsize=BF16) == [Cut((0, 1), 0, 0, 0, 0, 73728)]
    assert cuts(MLA, Side(2, 64, "LBNHC"), Side(4, 64), 3, itemsize=BF16) == [Cut((0, 1), 0, 0, 0, 0, 73728)]


# Two heads of one channel, one byte an element: a row (K and V of one head and token) is 2 bytes.
TINY = Layer(2, 1)


def test_a_larger_decode_block_takes_from_two_prefill_blocks() -> None:
    assert cuts(TINY, Side(1, 2), Side(2, 4), 1, itemsize=1) == [Cut((0,), 0, 4, 0, 0, 4), Cut((0,), 1, 4, 0, 4, 4)]


def test_a_larger_prefill_block_gives_to_two_decode_blocks() -> None:
    assert cuts(TINY, Side(1, 4), Side(2, 2), 1, blocks=3, itemsize=1) == [
        Cut((0,), 0, 8, 0, 0, 4),
        Cut((0,), 0, 12, 1, 0, 4),
        Cut((0,), 1, 8, 2, 0, 4),
    ]


def test_heads_that_alternate_are_taken_row_by_row() -> None:
    assert cuts(TINY, Side(1, 2, "LBNHC"), Side(1, 2, "LBHNC"), 0, itemsize=1) == [
        Cut((0,), 0, 0, 0, 0, 2),
        Cut((0,), 0, 4, 0, 2, 2),
        Cut((0,), 0, 2, 0, 4, 2),
        Cut((0,), 0, 6, 0, 6, 2),
    ]
    assert cuts(TINY, Side(1, 2, "LBNHC"), Side(2, 2, "LBNHC"), 1, itemsize=1) == [
        Cut((0,), 0, 2, 0, 0, 2),
        Cut((0,), 0, 6, 0, 2, 2),
    ]


def test_equal_sides_are_one_run_a_block_in_either_layout() -> None:
    whole = [Cut((1,), 0, 0, 0, 0, 8), Cut((1,), 1, 0, 1, 0, 8)]
    for layout in kv_heads.LAYOUTS:
        side = Side(2, 2, layout)
        assert cuts(Layer(4, 1), side, side, 1, blocks=2, itemsize=1) == whole


# What is promised, and what is refused


@pytest.mark.parametrize(
    ("layers", "prefill", "decode", "hybrid"),
    [
        (GEMMA, Side(4, 64), Side(8, 64), False),
        (GEMMA, Side(2, 64), Side(4, 64), False),
        (GEMMA, Side(8, 64), Side(8, 64), True),
        (GEMMA, Side(8, 64), Side(8, 64), False),
        (GEMMA, Side(8, 64, "LBNHC"), Side(8, 64, "LBNHC"), True),
        (GEMMA, Side(8, 32), Side(8, 64), True),
        (LLAMA, Side(16, 16), Side(1, 64), False),
        (LLAMA, Side(1, 64), Side(16, 16), True),
        (LLAMA, Side(8, 16, "LBNHC"), Side(16, 16), False),
        (LLAMA, Side(16, 16), Side(8, 16, "LBNHC"), False),
        ([MLA], Side(2, 64, "LBNHC"), Side(8, 64, "LBNHC"), False),
        ([MLA, *LLAMA], Side(8, 16), Side(2, 32), True),
        ([Layer(8, 64), Layer(8, 128, "sliding")], Side(8, 16), Side(2, 32), True),
    ],
)
def test_served(layers: list[Layer], prefill: Side, decode: Side, hybrid: bool) -> None:
    assert refusal(layers, prefill, decode, hybrid=hybrid) == ""


@pytest.mark.parametrize(
    ("layers", "prefill", "decode", "hybrid", "why"),
    [
        (
            GEMMA, Side(8, 64), Side(4, 64), False,
            "layers of 4 and 16 KV heads at prefill TP8, decode TP4: decode TP must be at least prefill TP",
        ),
        (
            GEMMA, Side(4, 64), Side(8, 64), True,
            "layers of 4 and 16 KV heads at prefill TP4, decode TP8: the hybrid KV-cache manager must be off, a shared page cannot be re-sharded layer by layer",
        ),
        (
            GEMMA, Side(4, 64), Side(8, 32), False,
            "layers of 4 and 16 KV heads at prefill TP4, decode TP8: block sizes 64 and 32 must be equal",
        ),
        (
            [*GEMMA, Layer(1, 64)], Side(4, 64, "LBNHC"), Side(8, 64), False,
            "layers of 1, 4 and 16 KV heads at prefill TP4, decode TP8: layouts LBNHC and LBHNC must be equal",
        ),
        (
            GEMMA, Side(4, 64, "LBNHC"), Side(8, 64, "LBNHC"), False,
            "layout LBNHC cannot be cut by heads: a layer of 16 KV heads has 4 on a prefill rank (TP4), 2 on a decode rank (TP8)",
        ),
        (
            LLAMA, Side(8, 16), Side(4, 16, "LBNHC"), False,
            "layout LBNHC cannot be cut by heads: a layer of 8 KV heads has 1 on a prefill rank (TP8), 2 on a decode rank (TP4)",
        ),
        (LLAMA, Side(3, 16), Side(8, 16), False, "8 KV heads do not split over TP3: one must divide the other"),
        (LLAMA, Side(8, 16), Side(12, 16), False, "8 KV heads do not split over TP12: one must divide the other"),
        (LLAMA, Side(6, 16), Side(6, 16), False, "8 KV heads do not split over TP6: one must divide the other"),
        (GEMMA, Side(8, 64), Side(8, 48), False, "block sizes 64 (prefill) and 48 (decode): one must divide the other"),
    ],
)  # fmt: skip
def test_refused(layers: list[Layer], prefill: Side, decode: Side, hybrid: bool, why: str) -> None:
    assert refusal(layers, prefill, decode, hybrid=hybrid) == why


ONE = Side(1, 16)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: held(GLOBAL, 4, 4), "rank 4 is outside TP4: ranks are 0 to 3"),
        (lambda: held(MLA, 4, -1), "rank -1 is outside TP4: ranks are 0 to 3"),
        (lambda: held(GLOBAL, 3, 0), "4 KV heads do not split over TP3: one must divide the other"),
        (lambda: held(GLOBAL, 6, 0), "4 KV heads do not split over TP6: one must divide the other"),
        (lambda: held(GLOBAL, 0, 0), "tp is 0: must be at least 1"),
        (lambda: held(Layer(0, 64), 1, 0), "heads is 0: must be at least 1"),
        (lambda: held(Layer(4, 0), 1, 0), "head_size is 0: must be at least 1"),
        (lambda: held(Layer(4, 64, "mamba"), 1, 0), "unknown kind of layer 'mamba': one of full, sliding, mla"),
        (lambda: held(Layer(2, 64, "mla"), 1, 0), "an mla layer has 1 head, not 2: every rank holds the whole latent vector"),
        (lambda: holders(GLOBAL, 4, 4), "head 4 is outside the layer: its heads are 0 to 3"),
        (lambda: holders(GLOBAL, 4, -1), "head -1 is outside the layer: its heads are 0 to 3"),
        (lambda: holders(GLOBAL, 0, 0), "tp is 0: must be at least 1"),
        (lambda: holders(Layer(0, 64), 1, 0), "heads is 0: must be at least 1"),
        (lambda: block_bytes(GLOBAL, Side(1, 0), 2), "block_size is 0: must be at least 1"),
        (lambda: block_bytes(GLOBAL, ONE, 0), "itemsize is 0: must be at least 1"),
        (lambda: block_bytes(GLOBAL, Side(1, 16, "NHD"), 2), "unknown layout 'NHD': one of LBHNC, LBNHC"),
        (lambda: bytes_per_token([], 1, 2), "no layers"),
        (lambda: bytes_per_token(LLAMA, 3, 2), "8 KV heads do not split over TP3: one must divide the other"),
        (lambda: cuts(GLOBAL, ONE, ONE, 1), "rank 1 is outside TP1: ranks are 0 to 0"),
        (lambda: cuts(GLOBAL, ONE, ONE, 0, blocks=0), "blocks is 0: must be at least 1"),
        (lambda: cuts(GLOBAL, ONE, ONE, 0, itemsize=0), "itemsize is 0: must be at least 1"),
        (lambda: cuts(GLOBAL, ONE, Side(1, 24), 0), "block sizes 16 (prefill) and 24 (decode): one must divide the other"),
        (lambda: cuts(GLOBAL, Side(3, 16), ONE, 0), "4 KV heads do not split over TP3: one must divide the other"),
        (lambda: cuts(GLOBAL, Side(1, 16, "HND"), ONE, 0), "unknown layout 'HND': one of LBHNC, LBNHC"),
        (lambda: cuts(GLOBAL, ONE, Side(1, 16, ""), 0), "unknown layout '': one of LBHNC, LBNHC"),
        (lambda: writes(GLOBAL, ONE, Side(4, 16), 1), "rank 1 is outside TP1: ranks are 0 to 0"),
        (lambda: writes(GLOBAL, ONE, Side(0, 16), 0), "tp is 0: must be at least 1"),
        (lambda: refusal([], ONE, ONE), "no layers"),
        (lambda: refusal(LLAMA, Side(0, 16), ONE), "tp is 0: must be at least 1"),
        (lambda: refusal(LLAMA, ONE, Side(1, -1)), "block_size is -1: must be at least 1"),
        (lambda: refusal([*LLAMA, Layer(8, 128, "ssm")], ONE, ONE), "unknown kind of layer 'ssm': one of full, sliding, mla"),
    ],
)  # fmt: skip
def test_wrong_arguments(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        call()


def test_it_needs_nothing_but_the_standard_library() -> None:
    """Tests on real vLLM copy the file to where the rest of patchline is not."""
    nodes = list(ast.walk(ast.parse(Path(kv_heads.__file__).read_text())))
    assert not [node for node in nodes if isinstance(node, ast.Import)]
    found = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert found == {"__future__", "collections.abc", "typing"}
    assert {name.split(".")[0] for name in found if name} <= sys.stdlib_module_names


# Properties, against memory in which every byte carries the label of what it is


class Label(NamedTuple):
    """One byte of a cache: `kv` is 0 for K, 1 for V, 2 for a latent vector."""

    head: int
    token: int
    kv: int
    channel: int
    byte: int


class Case(NamedTuple):
    """One layer, both sides, and the request's decode blocks."""

    layer: Layer
    prefill: Side
    decode: Side
    blocks: int
    itemsize: int

    def cuts(self, rank: int) -> list[Cut]:
        return cuts(self.layer, self.prefill, self.decode, rank, blocks=self.blocks, itemsize=self.itemsize)

    def writes(self, rank: int) -> list[tuple[int, Cut]]:
        return writes(self.layer, self.prefill, self.decode, rank, blocks=self.blocks, itemsize=self.itemsize)

    def memory(self, side: Side, rank: int) -> list[list[Label]]:
        """The blocks of the request on one rank, written in the order of their layout."""
        tokens = self.blocks * self.decode.block_size
        firsts = range(0, tokens, side.block_size)
        return [self._block(side, shares(self.layer, side.tp)[rank], first) for first in firsts]

    def _block(self, side: Side, heads: list[int], first: int) -> list[Label]:
        tokens = range(first, first + side.block_size)
        if side.layout == "LBHNC":
            rows = [(head, token) for head in heads for token in tokens]
        else:
            rows = [(head, token) for token in tokens for head in heads]
        return [
            Label(head, token, kv, channel, byte)
            for head, token in rows
            for kv in ([2] if self.layer.kind == "mla" else [0, 1])
            for channel in range(self.layer.head_size)
            for byte in range(self.itemsize)
        ]


def shares(layer: Layer, tp: int) -> list[list[int]]:
    """The heads of each rank, said in another way: deal out all heads, each so often that every rank gets one."""
    if layer.kind == "mla":
        return [[0]] * tp
    dealt = sorted(list(range(layer.heads)) * max(1, tp // layer.heads))
    size = len(dealt) // tp
    return [dealt[at : at + size] for at in range(0, len(dealt), size)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kind = draw(st.sampled_from(kv_heads.KINDS))
    heads = 1 if kind == "mla" else draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]))
    tps = st.sampled_from([tp for tp in range(1, 17) if heads % tp == 0 or tp % heads == 0])
    sizes = st.sampled_from(draw(st.sampled_from([[1, 2, 4], [3, 6], [2, 6], [8]])))
    layouts = st.sampled_from(kv_heads.LAYOUTS)
    prefill, decode = (Side(draw(tps), draw(sizes), draw(layouts)) for _ in range(2))
    layer = Layer(heads, draw(st.integers(1, 3)), kind)
    return Case(layer, prefill, decode, draw(st.integers(1, 4)), draw(st.sampled_from([1, 2])))


@repeatable
@given(cases())
def test_each_byte_that_is_copied_is_the_byte_that_belongs_there(case: Case) -> None:
    """From every source of every cut: no gap, no overlap, nothing outside a block, and the right label everywhere."""
    remote = [case.memory(case.prefill, rank) for rank in range(case.prefill.tp)]
    for rank in range(case.decode.tp):
        wanted = case.memory(case.decode, rank)
        found: list[list[Label | None]] = [[None] * len(block) for block in wanted]
        for cut in case.cuts(rank):
            assert cut.length > 0
            assert 0 <= cut.offset <= cut.offset + cut.length <= len(found[cut.block])
            target = slice(cut.offset, cut.offset + cut.length)
            assert set(found[cut.block][target]) == {None}
            for source in cut.sources:
                block = remote[source][cut.source_block]
                assert 0 <= cut.source_offset <= cut.source_offset + cut.length <= len(block)
                bytes_read = block[cut.source_offset : cut.source_offset + cut.length]
                assert bytes_read == wanted[cut.block][target]
                found[cut.block][target] = bytes_read
        assert found == wanted


@repeatable
@given(cases())
def test_runs_are_in_order_and_as_long_as_they_can_be(case: Case) -> None:
    for rank in range(case.decode.tp):
        runs = case.cuts(rank)
        assert runs == sorted(runs, key=lambda cut: (cut.block, cut.offset))
        for a, b in pairwise(runs):
            same = (a.sources, a.source_block, a.block) == (b.sources, b.source_block, b.block)
            meet = (a.source_offset + a.length, a.offset + a.length) == (b.source_offset, b.offset)
            assert not (same and meet)


@repeatable
@given(cases())
def test_sources_are_all_the_ranks_that_hold_the_bytes(case: Case) -> None:
    remote = [case.memory(case.prefill, rank) for rank in range(case.prefill.tp)]
    for rank in range(case.decode.tp):
        for cut in case.cuts(rank):
            wanted = case.memory(case.decode, rank)[cut.block][cut.offset]
            having = [at for at, blocks in enumerate(remote) if wanted in blocks[cut.source_block]]
            assert list(cut.sources) == having


@repeatable
@given(cases())
def test_every_head_is_held_and_read_as_often_as_it_is_held(case: Case) -> None:
    for side in (case.prefill, case.decode):
        assert [list(held(case.layer, side.tp, rank)) for rank in range(side.tp)] == shares(case.layer, side.tp)
        for head in range(case.layer.heads):
            ranks = holders(case.layer, side.tp, head)
            assert ranks == tuple(at for at, heads in enumerate(shares(case.layer, side.tp)) if head in heads)
            assert ranks
    read: Counter[int] = Counter()
    for rank in range(case.decode.tp):
        for cut in case.cuts(rank):
            block = case.memory(case.prefill, cut.sources[0])[cut.source_block]
            read.update(label.head for label in block[cut.source_offset : cut.source_offset + cut.length])
    row = (1 if case.layer.kind == "mla" else 2) * case.layer.head_size * case.itemsize
    once = case.blocks * case.decode.block_size * row
    assert read == {head: once * len(holders(case.layer, case.decode.tp, head)) for head in range(case.layer.heads)}


@repeatable
@given(cases())
def test_each_cut_is_written_once_by_one_that_holds_it(case: Case) -> None:
    written = [(reader, cut) for rank in range(case.prefill.tp) for reader, cut in case.writes(rank)]
    wanted = [(reader, cut) for reader in range(case.decode.tp) for cut in case.cuts(reader)]
    assert Counter(written) == Counter(wanted)
    for rank in range(case.prefill.tp):
        assert all(rank in cut.sources for _, cut in case.writes(rank))


@repeatable
@given(cases())
def test_a_rank_gets_the_bytes_of_its_tokens(case: Case) -> None:
    size = block_bytes(case.layer, case.decode, case.itemsize)
    assert size == len(case.memory(case.decode, 0)[0])
    assert size == case.decode.block_size * bytes_per_token([case.layer], case.decode.tp, case.itemsize)
    for rank in range(case.decode.tp):
        assert sum(cut.length for cut in case.cuts(rank)) == case.blocks * size


@repeatable
@given(st.lists(cases(), min_size=1, max_size=4), st.booleans())
def test_what_is_promised_can_be_cut(drawn: list[Case], hybrid: bool) -> None:
    """Where nothing is refused, every rank has cuts; at unequal TPs they are as long as one head of a block or longer."""
    layers = [case.layer for case in drawn]
    prefill, decode = drawn[0].prefill, drawn[0].decode
    if refusal(layers, prefill, decode, hybrid=hybrid):
        return
    for layer in layers:
        for rank in range(decode.tp):
            runs = cuts(layer, prefill, decode, rank, itemsize=1)
            if prefill.tp != decode.tp:
                row = (1 if layer.kind == "mla" else 2) * layer.head_size
                assert min(cut.length for cut in runs) >= min(prefill.block_size, decode.block_size) * row
