"""Releases: what an image is, attached to it and recorded; tags that are never moved; what has to hold before one."""
