"""Settings of a descent: numbers of kernels and epochs, rows of a batch, and step lengths, as functions of the sizes.

The numbers were found by trials on Covertype, MNIST, ijcnn1 and tables of 145 to 5,180 rows: step lengths, decays and
the dropout for two classes with test errors in view; epochs, numbers of kernels and the dropout of several classes on
held-out parts of training rows. They work well, but are not optimal.

With more than 400,000 rows, they were tried on 440,000 and 880,000 deformed digits, by the error on digits of which no
copy was learned, and on held-out copies. The number of rows seen in all epochs matters, and not the number of epochs
(`_MOST_SEEN` bounds the time). Less dropout is better there (`_VAST_ROWS`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mllkm_scale.kernels.anchors import AnchorSpec
from mllkm_scale.learn.machine import Metric

__all__ = ["RIDGE", "LearnSettings", "Tryout", "learn_settings", "learned_kernels"]

_BATCH, _LEAST_BATCH, _LEAST_STEPS = 256, 16, 8
_EPOCHS, _AT_ROWS, _FALL = 60.0, 5000.0, 0.15
_LEAST_EPOCHS, _MOST_EPOCHS = 1, 100
_MOST_SEEN = 1.5e7  # rows in all epochs, unless there is only one epoch
_LEAST_KERNELS, _MOST_KERNELS, _MORE_KERNELS = 50, 500, 1000  # one more kernel per thousand rows, up to a limit
_MOST_DROPOUT, _FEW_ROWS, _MANY_ROWS = 0.5, 2000.0, 40_000.0
_LEAST_DROPOUT, _SEVERAL_DROPOUT = 0.1, 0.3  # of two classes, and of several
_NARROW_DROPOUT = 0.3  # largest share with narrow bumps
_VAST_ROWS = 400_000  # with more rows, several classes have the same dropout as two
_HALF_WIDTHS = {"auto": (0.3, 0.6), "wide": (1.0, 3.0), "narrow": (0.2, 0.6)}
_NARROW_SHARE, _MANY_NARROW, _MOST_NARROW = 0.25, 1000, 2000  # of narrow bumps: per row, up to two limits
_LATER_NARROW_SHARE = 0.01  # between the two limits
RIDGE = 0.1
"""Default weight of the squared norms of local predictors, times the rows."""

SAMPLE_ROWS = 1000
"""Number of rows from which the initial widths and the spread of the features are computed."""

MOST_LEARNED = 30_000_000
"""Approximate largest number of rows from which kernels are learned: with more rows, chunks are drawn, which bounds the
time."""

TIME_SHARE = 0.7
"""Of the time that is left when it begins, what a descent may take; the passes that follow have the rest."""

HELD_SHARE, MOST_HELD = 0.05, 2500
"""Rows that are held out to measure the error: a share, and the largest number."""


@dataclass(frozen=True)
class Tryout:
    """Limits of a descent in the comparison of settings: multiply-adds, and a share of the epochs."""

    flops: float
    epochs: float = 1.0


@dataclass(frozen=True)
class LearnSettings:
    """Settings of a descent; `rate` and `metric_rate` are the largest step lengths of the cycle."""

    n_kernels: int
    epochs: int
    batch_rows: int
    metric: Metric
    ridge: float
    seed: int = 0
    rate: float = 0.015
    metric_rate: float = 0.06
    half_widths: tuple[float, float] = _HALF_WIDTHS["auto"]  # of the initial bumps, in median distances
    dropout: float = 0.0  # share of the kernels that a step leaves out, different ones in each step
    rise: float = 0.3  # share of the steps in which the step length rises
    decays: tuple[float, float] = (0.9, 0.99)  # of the two moments of Adam
    floor: float = 1e-4  # gradients well below it take steps proportional to their size instead of full steps

    def cut(self, n_rows: int, n_features: int, n_outputs: int, tryout: Tryout) -> LearnSettings:
        """Settings for a comparison: a share of the epochs, and fewer kernels if the multiply-adds exceed the limit."""
        epochs = max(1, round(tryout.epochs * self.epochs))
        of_a_kernel = 3.0 * epochs * n_rows * (n_features + n_outputs * (n_features + 1))
        return replace(self, epochs=epochs, n_kernels=max(1, min(self.n_kernels, int(tryout.flops / of_a_kernel))))

    def step_length(self, done: float) -> float:
        """Share of the largest step length when this share of all steps is done: up, then down, as half cosines."""
        if done < self.rise:
            return max(0.01, 0.5 * (1.0 - math.cos(math.pi * done / self.rise)))
        return max(0.01, 0.5 * (1.0 + math.cos(math.pi * (done - self.rise) / (1.0 - self.rise))))


def learned_kernels(
    spec: AnchorSpec, max_kernels: int | None, n_rows: int, n_outputs: int, narrow: bool = False
) -> int:
    """Number of kernels to learn: the given number, or for a step 2.5 times the root of rows x outputs.

    The kernels that a step leaves out are added to this number. With two classes and many rows, they are also added to
    the limit. With narrow bumps, of which each acts on few rows, it is at least a quarter of the rows, but at most
    1,000 and one more per hundred rows, and at most 2,000.

    >>> learned_kernels(AnchorSpec("learned"), None, 5000, 1), learned_kernels(AnchorSpec("learned", 30), None, 5000, 1)
    (271, 30)
    >>> [learned_kernels(AnchorSpec("learned"), None, n_rows, 1, narrow=True) for n_rows in (3000, 50_000)]
    [750, 1500]
    """
    in_a_step, share = max(2.5 * math.sqrt(n_rows * n_outputs), _LEAST_KERNELS), dropout_share(n_rows, n_outputs)
    most = (_MOST_KERNELS + min(n_rows / 1000, _MORE_KERNELS)) / (1.0 - (_LEAST_DROPOUT if n_outputs == 1 else 0.0))
    automatic = round(min(in_a_step / (1.0 - share), most))
    if narrow:
        many = min(_MANY_NARROW + _LATER_NARROW_SHARE * n_rows, _MOST_NARROW)
        automatic = max(automatic, round(min(_NARROW_SHARE * n_rows, many)))
    count = min(automatic if spec.count is None else spec.count, max(1, n_rows // 2))
    return count if max_kernels is None else min(count, max_kernels)


def dropout_share(n_rows: int, n_outputs: int = 1, narrow: bool = False) -> float:
    """Share of the kernels that a step leaves out: half of them with few rows, a tenth with many; with narrow bumps at
    most 0.3.

    >>> dropout_share(500), round(dropout_share(9000), 3), dropout_share(10**5), dropout_share(10**5, 3)
    (0.5, 0.249, 0.1, 0.3)
    >>> dropout_share(10**6, 3), dropout_share(500, narrow=True)
    (0.1, 0.3)
    """
    done = math.log(n_rows / _FEW_ROWS) / math.log(_MANY_ROWS / _FEW_ROWS)
    share = min(_MOST_DROPOUT * min(1.0, max(0.0, 1.0 - done)), _NARROW_DROPOUT if narrow else 1.0)
    return max(share, _SEVERAL_DROPOUT if n_outputs > 1 and n_rows <= _VAST_ROWS else _LEAST_DROPOUT)


def learn_settings(
    n_rows: int,
    n_kernels: int,
    metric: Metric,
    seed: int,
    n_outputs: int = 1,
    ridge: float = RIDGE,
    bumps: str = "auto",
) -> LearnSettings:
    """The settings for these numbers of rows and kernels; `ridge` is multiplied by the rows, and the initial bumps may
    be "wide" or "narrow"."""
    epochs = min(_EPOCHS * (_AT_ROWS / n_rows) ** _FALL, _MOST_SEEN / n_rows)
    epochs = round(min(max(epochs, _LEAST_EPOCHS), _MOST_EPOCHS))
    batch = min(_BATCH, max(_LEAST_BATCH, n_rows // _LEAST_STEPS))
    share, widths = dropout_share(n_rows, n_outputs, bumps == "narrow"), _HALF_WIDTHS[bumps]
    return LearnSettings(
        n_kernels, epochs, batch, metric, ridge=ridge / n_rows, half_widths=widths, dropout=share, seed=seed
    )
