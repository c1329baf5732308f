"""Image registries: reading, pushing and tagging, by the OCI distribution specification."""
