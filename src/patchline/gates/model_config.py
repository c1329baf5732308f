"""Which layers of a model have a KV cache, and how many KV heads each has, by its `config.json`.

The rules are those by which vLLM 0.28.0 and 0.31.0 read the file (`transformers_utils/model_arch_config_convertor.py`
and `configs/gemma4.py`). What they leave to a default of transformers is asked for here, and what is not modelled
(state layers apart, which are counted) is refused by its key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from patchline.gates.config_json import Config, load
from patchline.kv_heads import Layer
from patchline.nearest import hint

DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Bytes of an element of a KV cache."""

_KINDS = {"full_attention": "full", "attention": "full", "sliding_attention": "sliding"}
_STATES = ("linear_attention", "mamba", "conv")
"""`layer_types` that keep a state of fixed size in place of keys and values."""

_MLA = (
    *("axk1", "deepseek_mtp", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm4_moe_lite_mtp"),
    *("glm_moe_dsa", "kimi_k2", "longcat_flash", "longcat_flash_ngram", "pangu_ultra_moe", "pangu_ultra_moe_mtp"),
)
"""Model types that both vLLM versions serve as multi-head latent attention, where `kv_lora_rank` is given."""

_MOST_LAYERS = 10_000

_NOT_MODELLED = {
    "attn_layer_indices": "attention on some layers only, in a form of its own",
    "attn_layer_period": "attention on some layers only, in a form of its own",
    "block_configs": "layers that differ in a form of its own",
    "compress_ratios": "compressed sparse attention",
    "hybrid_override_pattern": "attention on some layers only, in a form of its own",
    "layers_block_type": "attention on some layers only, in a form of its own",
    "linear_attn_config": "attention on some layers only, in a form of its own",
    "max_window_layers": "a window on some layers only, which needs layer_types",
    "multi_query_group_num": "KV heads under another name",
    "n_head_kv": "KV heads under another name",
    "num_attention_groups": "KV heads under another name",
    "num_kv_heads": "KV heads under another name",
}


class Model(NamedTuple):
    """What a model's KV cache is made of."""

    type: str
    """`model_type` of the language model."""
    attention_heads: int
    """Query heads of a layer; they split over TP ranks, or an engine does not start."""
    layers: tuple[Layer, ...]
    """Layers that have a KV cache of their own, in order: the regions that the connector sees."""
    dtype: str
    itemsize: int
    """Bytes of an element of the cache."""
    state_layers: int = 0
    """Layers with a state in place of keys and values: not modelled."""
    notes: tuple[str, ...] = ()
    """What the numbers do not say."""


def read(path: Path, dtype: str = "") -> Model:
    """The model that a `config.json`, or the one in the folder `path`, describes.

    Args:
        path: the file, or its folder.
        dtype: of the KV cache, one of `DTYPES`; the config's own if empty.

    Raises:
        UsageError: it cannot be read, contradicts itself, or describes what is not modelled; it names the key.
    """
    config = load(path)
    kind = _type(config)
    _check_modelled(config)
    name, itemsize, notes = _dtype(config, dtype)
    if config.has("kv_lora_rank"):
        layers, states = _latent(config), 0
    else:
        layers, states = _attention(config)
    if not layers:
        config.wrong("layer_types names no layer with a KV cache of its own")
    heads = config.number("num_attention_heads")
    return Model(kind, heads, layers, name, itemsize, states, (*notes, *_notes(config, states)))


def _check_modelled(config: Config) -> None:
    """Refuses keys of which nothing here knows what they do to a KV cache."""
    for key, what in _NOT_MODELLED.items():
        windows = key == "max_window_layers" and (config.has("layer_types") or not config.flag("use_sliding_window"))
        if config.has(key) and not windows:
            config.wrong(f"{key} is not modelled: {what}")
    if config.root.get("is_encoder_decoder"):
        config.wrong("is_encoder_decoder is not modelled: caches of cross-attention")


def _type(config: Config) -> str:
    kind = config.text.get("model_type") or config.root.get("model_type")
    if not isinstance(kind, str):
        config.wrong("model_type is missing")
    return kind


def _dtype(config: Config, asked: str) -> tuple[str, int, tuple[str, ...]]:
    """Name and bytes of a cache's element, and a note where vLLM may take another."""
    places = [(part, key) for part in (config.root, config.text) for key in ("dtype", "torch_dtype")]
    said = list(dict.fromkeys(part[key] for part, key in places if isinstance(part.get(key), str)))
    if not asked and len(said) != 1:
        config.wrong(f"dtype is {' and '.join(said)}: give --dtype" if said else "dtype is missing: give --dtype")
    name = asked or said[0].removeprefix("torch.")
    if name not in DTYPES:
        config.wrong(f"dtype {name!r}: {hint(name, DTYPES)}")
    if name == "float32" and not asked:
        return name, DTYPES[name], ("vLLM's --dtype auto serves a float32 model in 16 bits: give --dtype",)
    return name, DTYPES[name], ()


def _latent(config: Config) -> tuple[Layer, ...]:
    """An MLA model's layers: one latent vector for all heads, whole on every rank."""
    if _type(config) not in _MLA:
        config.wrong(
            f"kv_lora_rank is not modelled for model_type {_type(config)!r}: vLLM serves as MLA only {', '.join(_MLA)}"
        )
    width = config.number("kv_lora_rank") + config.number("qk_rope_head_dim")
    return (Layer(1, width, "mla"),) * _count(config)


def _count(config: Config) -> int:
    count = config.number("num_hidden_layers")
    if count > _MOST_LAYERS:
        config.wrong(f"num_hidden_layers is {count}: more than {_MOST_LAYERS} are not believed")
    return count


def _attention(config: Config) -> tuple[tuple[Layer, ...], int]:
    """The layers that have a KV cache of their own, and the number of those that keep a state in its place."""
    kinds = _kinds(config)
    shared = config.count("num_kv_shared_layers")
    if shared >= len(kinds):
        config.wrong(f"num_kv_shared_layers is {shared}, of {len(kinds)} layers")
    own = list(enumerate(kinds))[: len(kinds) - shared]
    changes = _changes(config, kinds)
    layers = tuple(_layer(config, kind, changes.get(at, {})) for at, kind in own if kind not in _STATES)
    return layers, sum(kind in _STATES for kind in kinds)


def _kinds(config: Config) -> list[str]:
    """`full`, `sliding`, or one of `_STATES`, for each layer."""
    count = _count(config)
    said = config.names("layer_types")
    legal = {**_KINDS, **dict.fromkeys(_STATES)}
    for name in said:
        if name not in legal:
            config.wrong(f"layer_types names {name!r}, which is not modelled: {hint(name, legal)}")
    if said and len(said) != count:
        config.wrong(f"layer_types names {len(said)} layers, num_hidden_layers is {count}")
    made = [(key, kinds) for key, kinds in _patterns(config, count) if kinds]
    for key, kinds in made:
        if said and kinds != [_KINDS.get(name, name) for name in said]:
            config.wrong(f"{key} contradicts layer_types")
    found = [_KINDS.get(name, name) for name in said] or (made[0][1] if made else _uniform(config, count))
    if _is_gemma4(config) and found[-1] != "full":
        config.wrong(
            "the last layer of a gemma-4 is full_attention: layer_types or sliding_window_pattern says otherwise"
        )
    return found


def _patterns(config: Config, count: int) -> list[tuple[str, list[str]]]:
    """What keys say that make every n-th layer a full one; empty where they are missing."""
    others = {
        "sliding_window_pattern": "sliding",
        "_sliding_window_pattern": "sliding",
        "full_attention_interval": "linear_attention",
    }
    return [
        (key, ["full" if (at + 1) % config.number(key) == 0 else other for at in range(count)])
        for key, other in others.items()
        if config.has(key)
    ]


def _uniform(config: Config, count: int) -> list[str]:
    """Layers of one kind: a window for all of them, or for none."""
    if _is_gemma4(config):
        config.wrong("layer_types and sliding_window_pattern are missing: a gemma-4 has sliding and full layers")
    windowed = config.has("sliding_window") and config.flag("use_sliding_window") is not False
    return ["sliding" if windowed else "full"] * count


def _changes(config: Config, kinds: list[str]) -> dict[int, dict[str, int]]:
    """Head counts and sizes of layers that differ from the model's, by layer."""
    listed = _per_layer(config, len(kinds))
    of_full = _of_full_layers(config)
    if listed is None:
        if _is_gemma4(config) and not config.has("global_head_dim"):
            config.wrong("global_head_dim is missing: transformers' default would decide")
        return {at: of_full for at, kind in enumerate(kinds) if kind == "full"}
    for at, kind in enumerate(kinds):
        for key, value in of_full.items() if kind == "full" else ():
            if listed.get(at, {}).get(key, config.text.get(key)) != value:
                config.wrong(f"per_layer_config contradicts what the config says of {key} on full layers (layer {at})")
    return listed


def _of_full_layers(config: Config) -> dict[str, int]:
    """What gemma-4's flat keys say of its full layers (`gemma4_layer_config`)."""
    found = {}
    if config.has("global_head_dim"):
        found["head_dim"] = config.number("global_head_dim")
    if config.has("num_global_key_value_heads"):
        if not config.has("attention_k_eq_v"):
            config.wrong("num_global_key_value_heads counts only with attention_k_eq_v, which is missing")
        if config.flag("attention_k_eq_v"):
            found["num_key_value_heads"] = config.number("num_global_key_value_heads")
    return found


def _per_layer(config: Config, count: int) -> dict[int, dict[str, int]] | None:
    """`per_layer_config`, as transformers 5.15 and later write what differs; None where it is missing."""
    if not config.has("per_layer_config"):
        return None
    table = config.text["per_layer_config"]
    if not isinstance(table, dict) or not all(isinstance(changes, dict) for changes in table.values()):
        config.wrong("per_layer_config is not an object of objects")
    for at in table:
        if not (at.isascii() and at.isdigit() and int(at) < count):
            config.wrong(f"per_layer_config names layer {at!r}: layers are 0 to {count - 1}")
    return {int(at): _sizes(config, at, changes) for at, changes in table.items()}


def _sizes(config: Config, at: str, changes: dict[str, Any]) -> dict[str, int]:
    """What one entry of `per_layer_config` says of a layer's KV cache; the rest of it does not matter here."""
    entry = Config(config.path, {f"per_layer_config.{at}.{key}": value for key, value in changes.items()}, config.root)
    prefix = f"per_layer_config.{at}."
    keys = [key for key in ("num_key_value_heads", "head_dim") if entry.has(prefix + key)]
    return {key: entry.number(prefix + key) for key in keys}


def _layer(config: Config, kind: str, changes: dict[str, int]) -> Layer:
    """One layer; KV heads are the attention heads, and their size the model's share, where the config says nothing."""
    queries = config.number("num_attention_heads")
    own = config.number("num_key_value_heads") if config.has("num_key_value_heads") else queries
    heads = changes.get("num_key_value_heads", own)
    if queries % heads:
        config.wrong(f"num_attention_heads {queries} is no multiple of {heads} KV heads (a {kind} layer)")
    size = changes.get("head_dim", 0) or (config.number("head_dim") if config.has("head_dim") else _share(config))
    return Layer(heads, size, kind)


def _share(config: Config) -> int:
    """The size of a head where the config does not say it."""
    if _is_gemma4(config):
        config.wrong("head_dim is missing: transformers' default would decide")
    hidden, queries = config.number("hidden_size"), config.number("num_attention_heads")
    if hidden % queries:
        config.wrong(f"head_dim is missing, and hidden_size {hidden} is no multiple of num_attention_heads {queries}")
    return hidden // queries


def _is_gemma4(config: Config) -> bool:
    return _type(config).startswith("gemma4")


def _notes(config: Config, states: int) -> list[str]:
    found = []
    if states:
        found.append(
            f"{states} layers keep a state, which is not modelled: bytes are those of attention layers only, and both "
            "engines need VLLM_SSM_CONV_STATE_LAYOUT=DS"
        )
    if shared := config.count("num_kv_shared_layers"):
        found.append(f"the last {shared} layers use the KV cache of earlier ones: they have none of their own")
    if not config.has("head_dim") and not config.has("kv_lora_rank"):
        found.append(f"head_dim is missing: taken as hidden_size / num_attention_heads, {_share(config)}")
    if config.has("index_head_dim"):
        found.append("the cache of the sparse-attention indexer is not counted")
    if config.has("num_global_key_value_heads") and not config.flag("attention_k_eq_v"):
        found.append("num_global_key_value_heads has no effect: attention_k_eq_v is not true")
    return found
