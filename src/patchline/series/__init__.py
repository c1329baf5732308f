"""Ordered patches on one pin: read them, place them strictly, write them as commits or as a folder."""
