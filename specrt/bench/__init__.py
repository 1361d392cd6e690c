"""Benchmarks: ``python -m specrt.bench``.

No time is told for a result that was found wrong: answers with speculation are compared with plain
ones, ops with their twins, draws and proposals with a plain form before the first is timed. The
governor's own microseconds have nothing to be compared with: no K is a wrong result.
"""
