"""Trains a tiny model. It runs in a proof environment, with torch and transformers, without patchline."""
