"""The version of the package: it is written into models, reports and exports."""

__all__ = ["__version__"]

__version__ = "0.1.0"
