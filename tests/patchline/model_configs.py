"""Models' `config.json` files, in the shapes in which they are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SLIDING_THEN_FULL = ["sliding_attention"] * 5 + ["full_attention"]

GEMMA4_31B: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "model_type": "gemma4",
    "dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma4_text",
        "num_hidden_layers": 60,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "num_global_key_value_heads": 4,
        "head_dim": 256,
        "global_head_dim": 512,
        "attention_k_eq_v": True,
        "hidden_size": 5376,
        "sliding_window": 1024,
        "layer_types": SLIDING_THEN_FULL * 10,
    },
    "vision_config": {"num_hidden_layers": 27, "num_attention_heads": 16, "head_dim": 72},
}
"""Text shapes of the brief: 60 layers, every sixth global, 16 and 4 KV heads, of 256 and 512."""

TINY: dict[str, Any] = {
    "model_type": "gemma4_text",
    "dtype": "float32",
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 32,
    "hidden_size": 128,
    "attention_k_eq_v": True,
    "num_kv_shared_layers": 0,
    "sliding_window": 128,
    "layer_types": SLIDING_THEN_FULL,
    "per_layer_config": {"5": {"head_dim": 64, "num_key_value_heads": 2}},
}
"""The model that is served on a CPU, as transformers 5.17 saves it."""

LLAMA_70B: dict[str, Any] = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
}

DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
}

QWEN3_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next",
    "dtype": "bfloat16",
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "hidden_size": 2048,
    "full_attention_interval": 4,
}


def written(folder: Path, config: object) -> Path:
    """The config as a file."""
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return file


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with other values in the language model's part; `...` takes a key away."""
    text = {**config.get("text_config", config), **changes}
    text = {key: value for key, value in text.items() if value is not ...}
    return {**config, "text_config": text} if "text_config" in config else text
