"""Stacks of real engines beside a running production: started, watched, and taken down whole."""
