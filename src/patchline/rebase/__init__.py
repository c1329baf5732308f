"""What becomes of a series on another upstream version: verdicts with evidence, and the rebased series."""
