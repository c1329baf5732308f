"""Gates: proofs on a fleet, against a running stack."""
