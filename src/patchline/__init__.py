"""patchline: carry patches on pinned upstreams, prove them, and build on them."""

__version__ = "0.1.0"
