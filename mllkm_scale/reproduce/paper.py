"""The figures of the paper's Table 2, as printed: mean and standard deviation over its ten splits."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TABLE2", "Printed"]


@dataclass(frozen=True)
class Printed:
    """A row of the paper's table: accuracy in percent, inference time in ms, kernels and support vectors."""

    accuracy: float
    deviation: float
    time_ms: float
    kernels: float
    support: float


TABLE2: dict[str, dict[str, Printed]] = {
    "ionosphere": {
        "MLLKM (Gaussian)": Printed(94.0, 2.3, 1.0, 22.5, 1),
        "MLLKM (Square)": Printed(92.9, 2.8, 2.4, 25.9, 1),
        "MLLKM (Component Gaussian)": Printed(91.7, 1.1, 8.0, 27.0, 1),
        "MLLKM (Component Square)": Printed(91.4, 2.4, 1.9, 25.3, 1),
        "SAG": Printed(79.1, 4.3, 0.0, 1, 1),
        "LLSVM": Printed(87.3, 2.2, 1.5, 32, 1),
        "LaSVM (Gaussian)": Printed(94.3, 2.2, 1.2, 1, 53.3),
        "SimpleMKL": Printed(95.1, 2.2, 18.9, 9.5, 159.7),
        "SequentialMKL": Printed(93.3, 3.1, 55.2, 15.9, 141.8),
    },
    "sonar": {
        "MLLKM (Gaussian)": Printed(81.0, 2.8, 0.6, 17.6, 1),
        "MLLKM (Square)": Printed(80.2, 3.5, 0.8, 18.4, 1),
        "MLLKM (Component Gaussian)": Printed(77.8, 2.4, 4.9, 19.8, 1),
        "MLLKM (Component Square)": Printed(80.2, 3.0, 1.0, 23.1, 1),
        "SAG": Printed(62.5, 5.9, 0.0, 1, 1),
        "LLSVM": Printed(67.8, 5.4, 0.5, 32, 1),
        "LaSVM (Gaussian)": Printed(79.0, 3.5, 0.5, 1, 73.6),
        "SimpleMKL": Printed(84.6, 4.4, 10.7, 8.5, 138.1),
        "SequentialMKL": Printed(86.3, 2.7, 15.4, 11.2, 124.5),
    },
    "heart": {
        "MLLKM (Gaussian)": Printed(81.6, 3.0, 0.6, 26.0, 1),
        "MLLKM (Square)": Printed(81.4, 4.1, 0.5, 27.1, 1),
        "MLLKM (Component Gaussian)": Printed(82.2, 4.9, 2.2, 27.3, 1),
        "MLLKM (Component Square)": Printed(81.1, 2.8, 0.8, 26.8, 1),
        "SAG": Printed(83.0, 3.5, 0.1, 1, 1),
        "LLSVM": Printed(80.4, 4.1, 0.3, 32, 1),
        "LaSVM (Gaussian)": Printed(79.6, 2.4, 0.5, 1, 74.7),
        "SimpleMKL": Printed(80.2, 2.9, 10.6, 7.4, 163.2),
        "SequentialMKL": Printed(80.0, 5.3, 12.1, 8.0, 164.9),
    },
    "diabetes": {
        "MLLKM (Gaussian)": Printed(75.3, 3.2, 0.9, 24.0, 1),
        "MLLKM (Square)": Printed(74.9, 3.6, 0.8, 28.1, 1),
        "MLLKM (Component Gaussian)": Printed(76.0, 4.1, 2.0, 29.6, 1),
        "MLLKM (Component Square)": Printed(72.6, 3.5, 1.1, 38.6, 1),
        "SAG": Printed(66.1, 9.0, 0.0, 1, 1),
        "LLSVM": Printed(74.2, 2.7, 2.3, 32, 1),
        "LaSVM (Gaussian)": Printed(77.1, 3.2, 3.6, 1, 141.9),
        "SimpleMKL": Printed(69.5, 4.1, 8.9, 3.3, 223.5),
        "SequentialMKL": Printed(69.5, 2.8, 55.0, 7.1, 216.6),
    },
}
