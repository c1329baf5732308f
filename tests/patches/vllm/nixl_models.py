"""Small models in the shapes that matter to the NIXL connector: their layers, configs and cache specs."""

import functools
import json
import tempfile
from pathlib import Path

import torch
from vllm.config import ModelConfig
from vllm.v1.kv_cache_interface import AttentionSpec, FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec

from patchline.kv_heads import Layer

MAX_TOKENS = 32

Layers = tuple[Layer, ...]


def gemma4(sliding_heads: int, global_heads: int) -> Layers:
    """Five sliding layers, then a global one with fewer and wider heads."""
    return (*[Layer(sliding_heads, 32, "sliding")] * 5, Layer(global_heads, 64))


SMALL = gemma4(8, 2)
GEMMA4_31B = gemma4(16, 4)
UNIFORM = (Layer(8, 32),) * 2
MLA = Layer(1, 128, "mla")


def layer_name(index: int) -> str:
    """What vLLM calls the attention of a model's layer."""
    return f"model.layers.{index}.self_attn.attn"


def cache_spec(layer: Layer, tp: int, block_size: int) -> AttentionSpec:
    """What vLLM says of a layer's cache on one of `tp` ranks."""
    sizes = {"block_size": block_size, "head_size": layer.head_size, "dtype": torch.float32}
    if layer.kind == "mla":
        return MLAAttentionSpec(num_kv_heads=1, **sizes)
    heads = max(1, layer.heads // tp)
    if layer.kind == "sliding":
        return SlidingWindowSpec(num_kv_heads=heads, sliding_window=128, **sizes)
    return FullAttentionSpec(num_kv_heads=heads, **sizes)


@functools.cache
def model_config(heads: int, layers: int) -> ModelConfig:
    """The config of a model whose model-wide KV head count is `heads`."""
    folder = tempfile.mkdtemp()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 64,
        "num_attention_heads": 16,
        "num_key_value_heads": heads,
        "num_hidden_layers": layers,
        "vocab_size": 64,
        "max_position_embeddings": MAX_TOKENS,
    }
    Path(folder, "config.json").write_text(json.dumps(config))
    return ModelConfig(model=folder, dtype="float32", skip_tokenizer_init=True, max_model_len=MAX_TOKENS)
