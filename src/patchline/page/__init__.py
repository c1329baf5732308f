"""The divergence page: one static file that says what is carried, why, since when, and what nothing explains."""
