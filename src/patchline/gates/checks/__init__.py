"""Checks of what a running endpoint answers, and of what its engines logged."""
