"""From a pin to a git repository: download, check, unpack, commit."""
