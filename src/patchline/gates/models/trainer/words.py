"""What the tiny models read and say: a few marks, 256 ids and 256 codes, one word a token."""

from __future__ import annotations

PAD, EOS, BOS, UNKNOWN = "<pad>", "<eos>", "<bos>", "<unk>"
USER, MODEL = "<user>", "<model>"
MARKS = (PAD, EOS, BOS, UNKNOWN, USER, MODEL)

BITS = 8
COUNT = 2**BITS
"""So many ids, and so many codes."""

WORDS = (*MARKS, *(f"k{number}" for number in range(COUNT)), *(f"v{number}" for number in range(COUNT)))
"""The vocabulary; a word's place is its token."""

TOKENS = {word: token for token, word in enumerate(WORDS)}
FIRST_ID, FIRST_CODE = TOKENS["k0"], TOKENS["v0"]

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %} <user> {{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %} <model> {{ message['content'] }} <eos>"
    "{% else %}{{ raise_exception('this model knows the roles user and assistant') }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %} <model>{% endif %}"
)
"""Here the last token is `<model>` and not the id that is asked for: the model has to look back for that one, so its
answer depends on the sliding layers' cache, too."""
