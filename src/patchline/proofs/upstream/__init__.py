"""Upstream's own tests as a regression suite: nothing that passes on stock fails on the overlay."""
