"""Serving images: a base by digest, one layer with the overlay, and what says so inside and outside of it."""
