"""NIXL connector: what stock serves is described to NIXL as stock describes it, byte for byte.

Both that a block of bytes is right and that it is moved in the same pieces. The model
cannot say the second; a file written on stock does (see ``nixl_descriptors``).
"""

import json

import pytest
from nixl_descriptors import FILE, NAMES, observed


@pytest.mark.unchanged
@pytest.mark.parametrize("name", NAMES)
def test_descriptors_are_those_of_stock(name):
    assert observed(name) == json.loads(FILE.read_bytes())[name]


@pytest.mark.unchanged
def test_every_kept_case_is_compared():
    assert list(json.loads(FILE.read_bytes())) == NAMES
