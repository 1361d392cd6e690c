"""Trains the embedded tiny model family: corpus, trunk, NextN block, GGUF files."""
