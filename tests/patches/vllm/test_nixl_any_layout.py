"""NIXL connector: models, TPs and blocks that nobody thought of, served rightly or refused before a byte moves."""

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from nixl_engine import Blocks
from nixl_models import Layers
from nixl_outcome import attempt, raise_if
from nixl_pair import decode, pair, prefill
from nixl_stock import REPLICATED, SERVED, SIZES, SPLIT, on_stock, on_the_overlay

from patchline.kv_heads import Layer

pytestmark = pytest.mark.wide

EXAMPLES = 30
# The first example that fails is the reason: no shrinking, no second reason, no luck.
few = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Request(NamedTuple):
    """A pair of engines and a request's blocks on both."""

    layers: Layers
    prefill_tp: int
    decode_tp: int
    push: bool
    prefill_blocks: Blocks
    decode_blocks: Blocks

    @property
    def pair(self) -> tuple[Layers, int, int, bool]:
        return self[:4]


tps = st.sampled_from([1, 2, 4, 8])
heads = st.sampled_from([1, 2, 4, 8, 16])
sharded = st.builds(Layer, heads, st.sampled_from([32, 64]), st.sampled_from(["full", "sliding"]))
latent = st.just(Layer(1, 128, "mla"))
blocks = st.permutations(range(8))


@st.composite
def requests(draw: Any, *, mixed: bool) -> Request:
    """Models whose layers' head counts differ, or all agree; an MLA layer may be among them."""
    first = draw(sharded)
    more = [draw(sharded) for _ in range(draw(st.integers(1, 3)))]
    if not mixed:
        more = [layer._replace(heads=first.heads) for layer in more]
    elif len({layer.heads for layer in (first, *more)}) == 1:
        more[-1] = more[-1]._replace(heads=first.heads % 16 * 2 or 1)
    layers = [first, *more, *draw(st.lists(latent, max_size=1))]
    count = draw(st.integers(1, 3))
    ids = [draw(blocks)[:count] for _ in range(2)]
    return Request(tuple(layers), draw(tps), draw(tps), draw(st.booleans()), (ids[0],), (ids[1],))


def served_rightly_or_refused(request: Request, answer: str) -> None:
    options = {"push": request.push, "num_blocks": 8}
    p = prefill(request.layers, request.prefill_tp, **options)
    d = decode(request.layers, request.decode_tp, **options)
    with pair(p, d):
        outcome = attempt(p, d, request.prefill_blocks, request.decode_blocks)
        if answer == SERVED:
            raise_if(outcome)
            return
        with pytest.raises((AssertionError, NotImplementedError), match=answer):
            raise_if(outcome)


@pytest.mark.holds(stock=f"{SPLIT}|{SIZES}|{REPLICATED}")
@few
@given(requests(mixed=True).filter(lambda request: on_the_overlay(*request.pair) == SERVED))
def test_any_mixed_model_that_the_patch_serves(request):
    served_rightly_or_refused(request, SERVED)


@pytest.mark.holds(stock=f"DID NOT RAISE|{SPLIT}|{SIZES}|{REPLICATED}")
@few
@given(requests(mixed=True).filter(lambda request: on_the_overlay(*request.pair) != SERVED))
def test_any_mixed_model_that_the_patch_refuses(request):
    served_rightly_or_refused(request, on_the_overlay(*request.pair))


@pytest.mark.unchanged
@few
@given(requests(mixed=False))
def test_any_uniform_model(request):
    assert on_the_overlay(*request.pair) == on_stock(*request.pair)
    served_rightly_or_refused(request, on_stock(*request.pair))
