"""A catalogue of data sets: what they hold, how they are fetched and verified, and where they are kept."""

from mllkm_scale.data.catalogue.entries import ENTRIES, CatalogueEntry, find
from mllkm_scale.data.catalogue.store import Data, cache_folder, fetch, load, locate

__all__ = ["ENTRIES", "CatalogueEntry", "Data", "cache_folder", "fetch", "find", "load", "locate"]
