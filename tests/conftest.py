"""Settings of the whole suite."""

from hypothesis import settings

# A busy machine must not fail a test: what has to be quick is bounded by the test itself.
settings.register_profile("specrt", deadline=None)
settings.load_profile("specrt")
