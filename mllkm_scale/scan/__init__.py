"""The scan of the open set for violators: the products of a block, and the scanner over all blocks."""

from mllkm_scale.scan.products import scan_block
from mllkm_scale.scan.scanner import Scan, Scanner, ScanResult
from mllkm_scale.scan.support import Support

__all__ = ["Scan", "ScanResult", "Scanner", "Support", "scan_block"]
