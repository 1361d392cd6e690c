"""``python -m specrt.bench``: cases as data, timing, report."""
