"""The commands of ``python -m specrt``: one file each."""
