"""The version of the package, as workers announce it."""

__version__ = "0.1.0"
