"""The exceptions that specrt raises: each says what was got, what was expected and what to do."""

__all__ = [
    "ContextError",
    "DownloadError",
    "FormatError",
    "MismatchError",
    "OptionError",
    "SpecrtError",
    "UnsupportedError",
]


class SpecrtError(Exception):
    """Base class of every error that specrt raises on purpose."""


class FormatError(SpecrtError, ValueError):
    """A file is not what it claims to be: truncated, hostile or inconsistent."""


class UnsupportedError(SpecrtError):
    """A well-formed file or a device asks for something that specrt does not run."""


class MismatchError(SpecrtError):
    """A tensor or key is missing or has the wrong shape, or a drafter belongs to another target."""


class ContextError(SpecrtError):
    """A prompt does not fit into the context that was loaded."""


class OptionError(SpecrtError, ValueError):
    """An option, flag or environment variable has a value out of its range."""


class DownloadError(SpecrtError):
    """A model could not be pulled: no network, no such name, or a wrong checksum."""
