"""The gates' tiny models: gemma-4-shaped, trained on the spot to give back a code from a list."""
