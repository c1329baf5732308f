"""NIXL connector: the tests of ``test_nixl_same_descriptors.py``, with what they need since vLLM 0.32.0."""

from nixl_032 import taken_from

globals().update(taken_from("test_nixl_same_descriptors"))
