"""The version of the package, which models, reports and exports record."""

__all__ = ["__version__"]

__version__ = "0.2.0.dev0"
