"""Which kernels of the open set violate: the products of a block, and the scanner over all blocks."""

from mllkm_scale.scan.local import LocalScanner, ScanResult
from mllkm_scale.scan.products import Support, scan_block

__all__ = ["LocalScanner", "ScanResult", "Support", "scan_block"]
