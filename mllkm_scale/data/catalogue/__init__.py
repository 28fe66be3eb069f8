"""A catalogue of public data sets: their contents, and how they are fetched, verified and stored."""

from mllkm_scale.data.catalogue.entries import ENTRIES, GENERATED, CatalogueEntry, GeneratedEntry, find
from mllkm_scale.data.catalogue.generated import GeneratedData, generate, generated_path
from mllkm_scale.data.catalogue.store import Data, cache_folder, fetch, load, locate

__all__ = [
    "ENTRIES",
    "GENERATED",
    "CatalogueEntry",
    "Data",
    "GeneratedData",
    "GeneratedEntry",
    "cache_folder",
    "fetch",
    "find",
    "generate",
    "generated_path",
    "load",
    "locate",
]
