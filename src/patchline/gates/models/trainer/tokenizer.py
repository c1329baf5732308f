"""The tokenizer: one word, one token."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors  # type: ignore[import-not-found,unused-ignore]
from transformers import PreTrainedTokenizerFast  # type: ignore[import-not-found,unused-ignore]

from .words import BOS, CHAT_TEMPLATE, EOS, MODEL, PAD, TOKENS, UNKNOWN, USER


def save(folder: Path) -> None:
    """Writes the tokenizer's files and the chat template into a model's folder."""
    made = Tokenizer(models.WordLevel(TOKENS, unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, TOKENS[BOS])])
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNKNOWN,
        extra_special_tokens=[USER, MODEL],
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)
