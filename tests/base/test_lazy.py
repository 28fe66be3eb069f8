"""Names that a package loads when they are first used."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import mllkm_scale

PACKAGES = [module.name for module in pkgutil.walk_packages(mllkm_scale.__path__, "mllkm_scale.") if module.ispkg]


@pytest.mark.parametrize("name", [name for name in PACKAGES if hasattr(importlib.import_module(name), "_HOMES")])
def test_no_module_hides_a_name_of_its_package(name: str) -> None:
    package = importlib.import_module(name)
    modules = {path.stem for path in Path(package.__path__[0]).iterdir()}
    assert not modules & set(package.__all__)
    for exported in package.__all__:
        assert callable(getattr(package, exported))
