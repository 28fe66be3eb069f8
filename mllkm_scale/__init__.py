"""Multiple Locally Linear Kernel Machines, trained out of core with a certified duality gap."""

__version__ = "0.1.0"
