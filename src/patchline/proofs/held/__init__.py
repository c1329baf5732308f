"""Held: whether every carried line has a test that fails without it, or when it is wrong."""
