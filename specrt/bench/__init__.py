"""Benchmarks: ``python -m specrt.bench``. No time is told for a wrong result."""
