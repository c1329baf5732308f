"""How far a tree or an image is from its upstreams: every byte belongs to a patch, or is a finding."""
