"""The instruction sets of this machine, as tape levels."""

from specrt._ext.host_ops import detect_level
from specrt.host import machine

LEVELS = {name: level for name, level in machine.LEVELS.items() if level <= detect_level()}
