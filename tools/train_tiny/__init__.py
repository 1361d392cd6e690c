"""Trains the embedded tiny model family: corpus, trunk, NextN block, block drafters, GGUF files."""
