"""Layouts by rule: the brief's numbers, the rules that real connector workers hold, and configs that are refused."""

from __future__ import annotations

import importlib.util
import re
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from model_configs import DEEPSEEK_V3, GEMMA4_31B, LLAMA_70B, QWEN3_NEXT, SLIDING_THEN_FULL, TINY, changed, written
from verbs import patchline

from patchline.cli import _Parser
from patchline.commands import layouts as verb
from patchline.errors import UsageError
from patchline.gates.layouts import TPS, Row, kinds, rows
from patchline.gates.model_config import Model, read
from patchline.gates.stacks import HYBRID_BY_DEFAULT, OVERLAY, STOCK_28, STOCK_31, Outcome, Pair, handshake, judge
from patchline.kv_heads import Layer, Side, cuts

ROOT = Path(__file__).parents[2]
SERVES, REFUSES, WRONG, UNSAFE, UNKNOWN = Outcome
SLIDING, GLOBAL = Layer(16, 256, "sliding"), Layer(4, 512)
GEMMA = [GLOBAL if at % 6 == 5 else SLIDING for at in range(60)]
FLAT_TINY = changed(TINY, per_layer_config=..., num_global_key_value_heads=2, global_head_dim=64)


def model(folder: Path, config: object, dtype: str = "") -> Model:
    return read(written(folder, config), dtype)


def row(of: Model, prefill: int, decode: int, block_size: int = 64) -> Row:
    [found] = rows(of, HYBRID_BY_DEFAULT, block_size=block_size, prefill=[prefill], decode=[decode])
    return found


def outcomes(of: Model, prefill: int, decode: int, *, hybrid: bool) -> list[Outcome]:
    pair = Pair(prefill, decode, 64)
    return [judge(stack, of, pair, hybrid=hybrid).outcome for stack in (STOCK_28, STOCK_31, OVERLAY)]


# --- the brief's numbers


def test_the_briefs_table(tmp_path: Path) -> None:
    found = row(model(tmp_path, GEMMA4_31B), 4, 8)
    assert found.prefill
    assert found.decode
    sliding, whole = zip(found.prefill.shares, found.decode.shares, found.slices, strict=True)
    assert (sliding[0].kind.name, sliding[0].kind.number, sliding[0].heads, sliding[1].heads) == ("sliding", 50, 4, 2)
    assert (whole[0].kind.name, whole[0].kind.number, whole[0].heads, whole[1].heads) == ("full", 10, 1, 1)
    assert (whole[0].block_bytes, whole[1].block_bytes) == (131072, 131072)
    assert found.slices == (Fraction(1, 2), Fraction(1))
    assert found.fetched == found.decode.bytes_per_token == 120 * 1024
    assert {stack: done.outcome for stack, done in found.judgements.items()} == {
        STOCK_28: WRONG,
        STOCK_31: REFUSES,
        OVERLAY: SERVES,
    }


@pytest.mark.parametrize(
    ("config", "prefill", "decode", "block_size", "text"),
    [
        (
            GEMMA4_31B, 4, 8, 64,
            "SPLIT region 5: remote P KV block_len 131072 must equal local 131072 * remote_heads 4 // local_heads 2 // block_size_ratio 1",
        ),
        (
            TINY, 2, 4, 32,
            "SPLIT region 5: remote P KV block_len 16384 must equal local 16384 * remote_heads 4 // local_heads 2 // block_size_ratio 1.",
        ),
    ],
)  # fmt: skip
def test_the_failures_that_were_seen_are_foretold_word_for_word(
    tmp_path: Path, config: object, prefill: int, decode: int, block_size: int, text: str
) -> None:
    found = row(model(tmp_path, config), prefill, decode, block_size)
    assert found.judgements[STOCK_31].why.startswith(text)
    assert found.judgements[STOCK_28].why.startswith(text)


def test_tp2_to_tp4_works_on_stock(tmp_path: Path) -> None:
    assert outcomes(model(tmp_path, GEMMA4_31B), 2, 4, hybrid=False) == [SERVES, SERVES, SERVES]


def test_llama_3_70b(tmp_path: Path) -> None:
    found = [row(model(tmp_path, LLAMA_70B), tp, tp) for tp in TPS]
    assert [one.fetched // 1024 for one in found] == [320, 160, 80, 40, 40]
    assert all(outcomes(model(tmp_path, LLAMA_70B), 1, tp, hybrid=True) == [SERVES] * 3 for tp in TPS)


def test_every_row_is_there_and_in_order(tmp_path: Path) -> None:
    found = rows(model(tmp_path, GEMMA4_31B), HYBRID_BY_DEFAULT, block_size=64)
    assert [(one.prefill_tp, one.decode_tp) for one in found] == list(product(TPS, TPS))


# --- the rules, against those that are held on real vLLM, and against the model of bytes


@pytest.fixture
def held_rules(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`nixl_stock`, by which the patches' tests on real connector workers expect what they expect."""
    monkeypatch.setitem(sys.modules, "nixl_models", ModuleType("nixl_models"))
    sys.modules["nixl_models"].Layers = tuple  # type: ignore[attr-defined]
    file = ROOT / "tests" / "patches" / "vllm" / "nixl_stock.py"
    spec = importlib.util.spec_from_file_location("held_rules", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def said_in_other_words(expected: str, why: str) -> bool:
    """The overlay's refusal has the model's text, and stock's one assertion has none."""
    words = {"NIXL cannot": "decode TP must be at least prefill TP", "bare assertion": "AssertionError without a text"}
    return any(theirs in expected and ours in why for theirs, ours in words.items())


MIXED = [(a, b) for a, b in product((1, 2, 4, 8, 16), repeat=2)]


def test_the_rules_are_those_that_hold_on_real_workers(held_rules: ModuleType) -> None:
    """For every mix of two head counts, the model-wide one first, and every pair of TPs."""
    checked = 0
    for (first, second), prefill, decode in product(MIXED, TPS, TPS):
        layers = (Layer(max(first, second), 32, "sliding"), Layer(min(first, second), 64))
        of = Model("made", 16, layers, "float32", 4)
        pair = Pair(prefill, decode, 32)
        for stack, expected in (
            (STOCK_31, held_rules.on_stock(layers, prefill, decode, False)),
            (OVERLAY, held_rules.on_the_overlay(layers, prefill, decode, False)),
        ):
            done = judge(stack, of, pair, hybrid=False)
            assert (done.outcome is SERVES) == (expected == ""), (layers, pair, stack, done, expected)
            said = re.search(expected, done.why) is not None
            assert said or said_in_other_words(expected, done.why), (layers, pair, stack, done, expected)
            checked += 1
    assert checked == 1250


def test_a_decode_gpu_reads_what_the_model_of_bytes_says() -> None:
    for layer, prefill, decode in product((SLIDING, GLOBAL, Layer(1, 576, "mla")), TPS, TPS):
        [found] = rows(
            Model("made", 16, (layer,), "bfloat16", 2), {}, block_size=64, prefill=[prefill], decode=[decode]
        )
        for rank in range(decode):
            runs = cuts(layer, Side(prefill, 64), Side(decode, 64), rank, itemsize=2)
            assert found.prefill
            assert sum(run.length for run in runs) == found.slices[0] * found.prefill.shares[0].block_bytes
            assert len({run.sources[0] for run in runs}) == max(1, found.slices[0])


def test_stock_sizes_by_the_largest_count_wherever_it_stands() -> None:
    of = Model("made", 16, (GLOBAL, SLIDING), "bfloat16", 2)
    assert "SPLIT region 0" in handshake(of, Pair(4, 8, 64))
    assert handshake(of, Pair(2, 4, 64)) == ""


# --- the hybrid KV-cache manager


def test_with_the_hybrid_manager_on(tmp_path: Path) -> None:
    gemma = model(tmp_path, GEMMA4_31B)
    assert outcomes(gemma, 4, 8, hybrid=True) == [WRONG, UNSAFE, REFUSES]
    assert outcomes(gemma, 2, 4, hybrid=True) == [SERVES, SERVES, REFUSES]
    assert outcomes(gemma, 8, 8, hybrid=True) == [SERVES, SERVES, SERVES]
    assert "hybrid KV-cache manager must be off" in judge(OVERLAY, gemma, Pair(4, 8, 64), hybrid=True).why


def test_more_prefill_ranks_than_heads_are_refused_before_any_length_is_looked_at() -> None:
    of = Model("made", 16, (Layer(8, 32, "sliding"), Layer(2, 64)), "bfloat16", 2)
    assert outcomes(of, 16, 8, hybrid=True) == [WRONG, REFUSES, REFUSES]
    assert outcomes(of, 8, 16, hybrid=True) == [SERVES, SERVES, SERVES]  # one head on every rank: nothing is cut


def test_stock_28_fails_loudly_where_nothing_needs_the_hybrid_manager(tmp_path: Path) -> None:
    assert outcomes(model(tmp_path, GEMMA4_31B), 4, 8, hybrid=False) == [REFUSES, REFUSES, SERVES]
    llama = model(tmp_path, LLAMA_70B)
    assert outcomes(llama, 16, 8, hybrid=True) == [REFUSES, REFUSES, REFUSES]
    gemma3 = changed(LLAMA_70B, layer_types=(SLIDING_THEN_FULL * 14)[:80])
    assert outcomes(model(tmp_path, gemma3), 16, 8, hybrid=True) == [WRONG, REFUSES, REFUSES]
    assert outcomes(model(tmp_path, gemma3), 4, 8, hybrid=True) == [SERVES, SERVES, SERVES]


# --- what is read from a config


def listed(of: Model) -> list[tuple[str, int, int, int]]:
    return [(kind.name, kind.number, kind.layer.heads, kind.layer.head_size) for kind in kinds(of)]


@pytest.mark.parametrize(
    "config",
    [
        GEMMA4_31B,
        GEMMA4_31B["text_config"] | {"dtype": "bfloat16"},
        changed(GEMMA4_31B, layer_types=..., sliding_window_pattern=6),
        changed(GEMMA4_31B, sliding_window_pattern=6),
        changed(
            GEMMA4_31B,
            num_global_key_value_heads=...,
            global_head_dim=...,
            per_layer_config={str(at): {"head_dim": 512, "num_key_value_heads": 4} for at in range(5, 60, 6)},
        ),
    ],
    ids=["layer-types", "text-config-alone", "pattern", "both", "per-layer"],
)
def test_gemma4_31b_in_each_form(tmp_path: Path, config: object) -> None:
    of = model(tmp_path, config)
    assert list(of.layers) == GEMMA
    assert (of.dtype, of.itemsize, of.attention_heads, of.notes) == ("bfloat16", 2, 32, ())


def test_the_tiny_model_in_both_forms(tmp_path: Path) -> None:
    of = model(tmp_path, TINY, "float32")
    assert listed(of) == [("sliding", 5, 8, 32), ("full", 1, 2, 64)]
    assert of == model(tmp_path, FLAT_TINY, "float32")
    assert "give --dtype" in model(tmp_path, TINY).notes[0]


def test_mla(tmp_path: Path) -> None:
    of = model(tmp_path, DEEPSEEK_V3)
    assert listed(of) == [("mla", 61, 1, 576)]
    for prefill, decode in product(TPS, TPS):
        assert outcomes(of, prefill, decode, hybrid=True) == [SERVES] * 3
        assert row(of, prefill, decode).fetched == 61 * 576 * 2
    sparse = model(tmp_path, changed(DEEPSEEK_V3, model_type="deepseek_v32", index_head_dim=128))
    assert sparse.notes == ("the cache of the sparse-attention indexer is not counted",)


def test_state_layers_are_counted_and_not_modelled(tmp_path: Path) -> None:
    of = model(tmp_path, QWEN3_NEXT)
    assert listed(of) == [("full", 12, 2, 256)]
    assert of.state_layers == 36
    assert "36 layers keep a state, which is not modelled" in of.notes[0]
    assert "VLLM_SSM_CONV_STATE_LAYOUT=DS" in of.notes[0]
    assert outcomes(of, 2, 4, hybrid=True) == [UNKNOWN] * 3
    assert outcomes(of, 4, 4, hybrid=True) == [SERVES] * 3
    spelled = changed(QWEN3_NEXT, layer_types=(["linear_attention"] * 3 + ["full_attention"]) * 12)
    assert model(tmp_path, spelled) == of


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_key_value_heads": ...}, [("full", 80, 64, 128)]),
        ({"head_dim": 64}, [("full", 80, 8, 64)]),
        ({"head_dim": None}, [("full", 80, 8, 128)]),
        ({"sliding_window": 4096}, [("sliding", 80, 8, 128)]),
        ({"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 70}, [("full", 80, 8, 128)]),
        ({"sliding_window_pattern": 4}, [("sliding", 60, 8, 128), ("full", 20, 8, 128)]),
        ({"num_kv_shared_layers": 30}, [("full", 50, 8, 128)]),
        (
            {"per_layer_config": {"3": {"num_key_value_heads": 4, "intermediate_size": 7}}},
            [("full 8x128", 79, 8, 128), ("full 4x128", 1, 4, 128)],
        ),
    ],
)
def test_other_shapes(tmp_path: Path, changes: dict[str, Any], expected: list[tuple[str, int, int, int]]) -> None:
    assert listed(model(tmp_path, changed(LLAMA_70B, **changes))) == expected


def test_a_folder_stands_for_its_config(tmp_path: Path) -> None:
    written(tmp_path, LLAMA_70B)
    assert read(tmp_path) == read(tmp_path / "config.json")


def test_heads_that_do_not_split_keep_an_engine_from_starting(tmp_path: Path) -> None:
    of = model(tmp_path, changed(LLAMA_70B, num_attention_heads=24, num_key_value_heads=6, head_dim=128))
    found = row(of, 4, 8)
    assert (found.prefill, found.slices) == (None, ())
    assert all(done.outcome is REFUSES for done in found.judgements.values())
    assert found.judgements[OVERLAY].why == "the prefill engine does not start: 6 KV heads do not split over TP4"
    tiny = model(tmp_path, TINY)
    assert (
        row(tiny, 1, 16).judgements[STOCK_31].why
        == "the decode engine does not start: 8 attention heads do not split over TP16"
    )


# --- configs that are refused

GLOBALS = {"num_global_key_value_heads": 4, "global_head_dim": 512, "attention_k_eq_v": True}


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ([], "the model's config is not a JSON object"),
        ({}, "model_type is missing"),
        ({"model_type": 3}, "model_type is missing"),
        (changed(LLAMA_70B, num_hidden_layers=...), "num_hidden_layers is missing"),
        (changed(LLAMA_70B, num_hidden_layers=0), "num_hidden_layers is 0: a whole number of at least 1 is wanted"),
        (changed(LLAMA_70B, num_hidden_layers=10**9), "more than 10000 are not believed"),
        (changed(LLAMA_70B, num_attention_heads=...), "num_attention_heads is missing"),
        (changed(LLAMA_70B, num_attention_heads=True), "num_attention_heads is True: a whole number"),
        (changed(LLAMA_70B, num_key_value_heads=[8, 4]), "num_key_value_heads is [8, 4]: a whole number"),
        (changed(LLAMA_70B, num_key_value_heads=8.0), "num_key_value_heads is 8.0: a whole number"),
        (changed(LLAMA_70B, num_key_value_heads=12), "num_attention_heads 64 is no multiple of 12 KV heads"),
        (changed(LLAMA_70B, hidden_size=8190), "head_dim is missing, and hidden_size 8190 is no multiple of"),
        (changed(LLAMA_70B, hidden_size=...), "hidden_size is missing"),
        (changed(LLAMA_70B, torch_dtype=...), "dtype is missing: give --dtype"),
        (changed(LLAMA_70B, dtype="float16"), "dtype is float16 and bfloat16: give --dtype"),
        (changed(LLAMA_70B, torch_dtype="bfloat61"), "dtype 'bfloat61': did you mean 'bfloat16'?"),
        (changed(LLAMA_70B, layer_types="full_attention"), "layer_types is 'full_attention': a list of texts"),
        (changed(LLAMA_70B, layer_types=["full_attention"]), "layer_types names 1 layers, num_hidden_layers is 80"),
        (changed(LLAMA_70B, layer_types=["full_atention"]), "did you mean 'full_attention'?"),
        (changed(LLAMA_70B, layer_types=["chunked_attention"] * 80), "layer_types names 'chunked_attention', which is"),
        (changed(LLAMA_70B, layer_types=["mamba"] * 80), "layer_types names no layer with a KV cache of its own"),
        (changed(LLAMA_70B, num_kv_shared_layers=80), "num_kv_shared_layers is 80, of 80 layers"),
        (changed(LLAMA_70B, use_sliding_window="no", sliding_window=8), "use_sliding_window is 'no': true or false"),
        (changed(LLAMA_70B, use_sliding_window=True, max_window_layers=7), "max_window_layers is not modelled"),
        (changed(LLAMA_70B, num_kv_heads=8), "num_kv_heads is not modelled"),
        (changed(LLAMA_70B, hybrid_override_pattern="M*"), "hybrid_override_pattern is not modelled"),
        (changed(LLAMA_70B, is_encoder_decoder=True), "is_encoder_decoder is not modelled"),
        (changed(LLAMA_70B, kv_lora_rank=512), "kv_lora_rank is not modelled for model_type 'llama'"),
        (changed(LLAMA_70B, per_layer_config=[1]), "per_layer_config is not an object of objects"),
        (changed(LLAMA_70B, per_layer_config={"80": {}}), "per_layer_config names layer '80': layers are 0 to 79"),
        (changed(LLAMA_70B, per_layer_config={"-1": {}}), "per_layer_config names layer '-1'"),
        (
            changed(LLAMA_70B, per_layer_config={"1": {"head_dim": "x"}}),
            "per_layer_config.1.head_dim is 'x': a whole number",
        ),
        (changed(DEEPSEEK_V3, qk_rope_head_dim=...), "qk_rope_head_dim is missing"),
        (changed(GEMMA4_31B, head_dim=...), "head_dim is missing: transformers' default would decide"),
        (changed(GEMMA4_31B, layer_types=...), "layer_types and sliding_window_pattern are missing"),
        (changed(GEMMA4_31B, global_head_dim=...), "global_head_dim is missing"),
        (changed(GEMMA4_31B, attention_k_eq_v=...), "num_global_key_value_heads counts only with attention_k_eq_v"),
        (changed(GEMMA4_31B, attention_k_eq_v="yes"), "attention_k_eq_v is 'yes': true or false"),
        (changed(GEMMA4_31B, sliding_window_pattern=5), "sliding_window_pattern contradicts layer_types"),
        (changed(GEMMA4_31B, sliding_window_pattern="LLG"), "sliding_window_pattern is 'LLG': a whole number"),
        (changed(GEMMA4_31B, layer_types=..., sliding_window_pattern=7), "the last layer of a gemma-4 is full_attention"),
        (changed(TINY, **GLOBALS), "per_layer_config contradicts what the config says of head_dim on full layers (layer 5)"),
        (changed(GEMMA4_31B, per_layer_config={}), "per_layer_config contradicts"),
        (GEMMA4_31B | {"num_key_value_heads": 8}, "num_key_value_heads is 8 outside text_config and 16 in it"),
        (GEMMA4_31B | {"text_config": 3}, "text_config is not an object"),
        (GEMMA4_31B | {"llm_config": {}}, "text_config and llm_config both describe a language model"),
    ],
)  # fmt: skip
def test_a_config_that_is_refused_names_the_key(tmp_path: Path, config: object, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        model(tmp_path, config)
    assert text in caught.value.what
    assert str(tmp_path / "config.json") in str(caught.value)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not JSON as it must be"),
        (b"\xff", "not JSON as it must be"),
        (b"[" * 100_000, "not JSON as it must be"),
        (b'{"head_dim": 1, "head_dim": 2}', "key 'head_dim' stands twice"),
    ],
    ids=["empty", "not-utf-8", "deep", "twice"],
)
def test_a_file_that_is_no_config(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(UsageError, match=text):
        read(tmp_path / "x.json")


def test_a_config_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file or directory"):
        read(tmp_path)


# --- the verb


def asked(*words: object) -> Any:
    parser = _Parser(prog="layouts")
    verb.configure(parser)
    return verb.run(parser.parse_args([str(word) for word in words]))


def test_a_note_where_the_flag_has_no_effect(tmp_path: Path) -> None:
    config = written(tmp_path, changed(GEMMA4_31B, attention_k_eq_v=False))
    assert "note: num_global_key_value_heads has no effect: attention_k_eq_v is not true" in asked(config).text


def test_the_verb_as_a_user_runs_it(tmp_path: Path) -> None:
    done = patchline("layouts", written(tmp_path, GEMMA4_31B), "--prefill", 4, "--decode", 8, "--json")
    assert (done.exit, done.err) == (0, "")
    [only] = done.data["rows"]
    assert only["decode"]["block_bytes"] == {"sliding": 131072, "full": 131072}
    assert only["prefill"]["block_bytes"] == {"sliding": 262144, "full": 131072}
    assert only["prefill"]["heads"] == {"sliding": 4, "full": 1}
    assert only["decode"]["heads"] == {"sliding": 2, "full": 1}
    assert only["slices"] == {"sliding": "1/2", "full": "1"}
    assert {stack: said["outcome"] for stack, said in only["outcomes"].items()} == {
        "stock 0.28": "wrong",
        "stock 0.31": "refuses",
        "overlay": "serves",
    }
    assert "not run" in done.data["derived"]
    assert done.data["hybrid_manager"] == {"stock 0.28": True, "stock 0.31": False, "overlay": False}


def test_the_table(tmp_path: Path) -> None:
    text = asked(written(tmp_path, GEMMA4_31B)).text
    lines = text.splitlines()
    assert lines[0] == (
        "gemma4_text: 50 sliding layers (16 KV heads of 256) and 10 full layers (4 KV heads of 512); "
        "bfloat16, blocks of 64 tokens"
    )
    assert "TP  sliding heads  full heads  KV of a token  sliding block  full block" in lines
    assert "8   2              1           120 KiB        131,072        131,072" in lines
    assert "TP4      TP8     120 KiB  1/2             1            wrong [8]   refuses [8]   serves" in lines
    assert sum(line.startswith("TP") for line in lines) == 26
    assert "derived by rule from the config and from vLLM's sources, and not run" in text
    assert "hybrid KV-cache manager: on for stock 0.28, off for stock 0.31, off for overlay" in text


@pytest.mark.parametrize(
    ("config", "first"),
    [
        (DEEPSEEK_V3, "deepseek_v3: 61 mla layers (a latent vector of 576); bfloat16, blocks of 64 tokens"),
        (
            changed(TINY, per_layer_config={"5": {"num_key_value_heads": 1}}),
            "gemma4_text: 5 sliding layers (8 KV heads of 32) and 1 full layer (1 KV head of 32); float32, blocks of 64 tokens",
        ),
    ],
    ids=["mla", "one"],
)  # fmt: skip
def test_how_layers_are_named(tmp_path: Path, config: object, first: str) -> None:
    assert asked(written(tmp_path, config)).text.splitlines()[0] == first


def test_one_stock_beside_the_overlay(tmp_path: Path) -> None:
    config = written(tmp_path, GEMMA4_31B)
    assert asked(config, "--stock", "0.31").data["hybrid_manager"] == {"stock 0.31": False, "overlay": False}
    assert asked(config, "--stock", "0.28.0", "--hybrid-manager", "on").data["hybrid_manager"] == {
        "stock 0.28": True,
        "overlay": True,
    }


def test_block_size_and_dtype_are_settings(tmp_path: Path) -> None:
    config = written(tmp_path, GEMMA4_31B)
    [only] = asked(config, "--block-size", 16, "--dtype", "fp8", "--prefill", 4, "--decode", 8).data["rows"]
    assert only["decode"]["block_bytes"] == {"sliding": 16384, "full": 16384}
    assert only["fetched_bytes_per_token"] == 60 * 1024


def test_heads_that_do_not_split_in_the_table(tmp_path: Path) -> None:
    config = written(tmp_path, changed(LLAMA_70B, num_attention_heads=24, num_key_value_heads=6, head_dim=128))
    done = asked(config, "--decode", 4)
    assert "4   do not split" in done.text
    assert done.data["rows"][0]["decode"] is None


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--stock", "0.33"], "--stock '0.33': rules are known for 0.28 and 0.31: did you mean"),
        (["--stock", "x"], "one of: 0.28, 0.28.0, 0.31, 0.31.0"),
        (["--block-size", "0"], "--block-size is 0: must be at least 1"),
        (["--prefill", "-4"], "--prefill is -4: must be at least 1"),
        (["--decode", "0"], "--decode is 0: must be at least 1"),
        (["--decode", "x"], "argument --decode: invalid int value: 'x'"),
        (["--dtype", "bf16"], "--dtype 'bf16': did you mean 'bfloat16'?"),
        (["--hybrid-manager", "maybe"], "argument --hybrid-manager: invalid choice"),
    ],
)
def test_wrong_arguments(tmp_path: Path, words: list[str], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        asked(written(tmp_path, GEMMA4_31B), *words)
    assert text in caught.value.what
