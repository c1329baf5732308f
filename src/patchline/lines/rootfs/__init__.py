"""Bases that are made here: Debian, Python packages for a CPU, and Dynamo; always the same bytes."""
