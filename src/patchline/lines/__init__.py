"""Lines: what becomes an image, from which series, on which base, behind which gates."""
