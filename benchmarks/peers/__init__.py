"""specrt beside other engines that serve the same GGUF file, in one run.

Every engine runs in processes of its own, one per mode and round, and only one of them computes at
a time. Who competes is a ``Contestant``; a new engine is one small file in ``engines``.
"""
