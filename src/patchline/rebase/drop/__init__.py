"""Dropping a patch once upstream has it: checked, the rest proven again, and told in the changelog."""
