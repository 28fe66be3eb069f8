"""How a descent goes: numbers of kernels and epochs, rows of a batch, and step lengths, as functions of the sizes.

The numbers were found by trials on Covertype, MNIST, ijcnn1 and tables of 145 to 5,180 rows: step lengths, decays and
the dropout of two classes by a look at test errors; epochs, numbers of kernels and the dropout of several classes on
held-out parts of training rows. They are settings that have worked, not optima.

With more than 400,000 rows, they were tried on 440,000 and 880,000 deformed digits, by the error on digits of which no
copy was learned, and on copies held out: what counts is how many rows are seen in all epochs, and not how many epochs
these are (`_MOST_SEEN` bounds the time), and less dropout is better (`_VAST_ROWS`).
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
_MOST_SEEN = 1.5e7  # rows in all epochs, unless these are the fewest
_LEAST_KERNELS, _MOST_KERNELS, _MORE_KERNELS = 50, 500, 1000  # one more for a thousand rows, but so many at most
_MOST_DROPOUT, _FEW_ROWS, _MANY_ROWS = 0.5, 2000.0, 40_000.0
_LEAST_DROPOUT, _SEVERAL_DROPOUT = 0.1, 0.3  # of two classes, and of several
_VAST_ROWS = 400_000  # with more of them, several classes have no more dropout than two
_HALF_WIDTHS, _WIDE_HALF_WIDTHS = (0.3, 0.6), (1.0, 3.0)
RIDGE = 0.1
"""Weight of the squared norms of local predictors, times the rows, where nothing says otherwise."""

SAMPLE_ROWS = 1000
"""Rows from which the first widths and the spread of the features are taken."""

MOST_LEARNED = 30_000_000
"""Rows from which kernels are learned, about: of more rows, chunks are drawn, which bounds the time."""

HELD_SHARE, MOST_HELD = 0.05, 2500
"""Rows that are held out to measure the error by: a share, and not more than so many."""


@dataclass(frozen=True)
class Tryout:
    """What a descent may take that settings are compared by: multiply-adds, and a share of the epochs."""

    flops: float
    epochs: float = 1.0


@dataclass(frozen=True)
class LearnSettings:
    """What a descent does; `rates` are the step lengths of the groups of parameters at the top of the cycle."""

    n_kernels: int
    epochs: int
    batch_rows: int
    metric: Metric
    ridge: float
    seed: int = 0
    rate: float = 0.015
    metric_rate: float = 0.06
    half_widths: tuple[float, float] = _HALF_WIDTHS  # of the first bumps, in median distances
    dropout: float = 0.0  # share of the kernels that are left out of a step, others in each
    rise: float = 0.3  # share of the steps in which the step length rises
    decays: tuple[float, float] = (0.9, 0.99)  # of the two moments of Adam
    floor: float = 1e-4  # gradients well below it take steps of their own size, and not of the full length

    def cut(self, n_rows: int, n_features: int, n_outputs: int, tryout: Tryout) -> LearnSettings:
        """Settings to compare others by: a share of the epochs, and kernels for at most so many multiply-adds."""
        epochs = max(1, round(tryout.epochs * self.epochs))
        of_a_kernel = 3.0 * epochs * n_rows * (n_features + n_outputs * (n_features + 1))
        return replace(self, epochs=epochs, n_kernels=max(1, min(self.n_kernels, int(tryout.flops / of_a_kernel))))

    def step_length(self, done: float) -> float:
        """Share of the largest step length when this share of all steps is done: up, then down, as half cosines."""
        if done < self.rise:
            return max(0.01, 0.5 * (1.0 - math.cos(math.pi * done / self.rise)))
        return max(0.01, 0.5 * (1.0 + math.cos(math.pi * (done - self.rise) / (1.0 - self.rise))))


def learned_kernels(spec: AnchorSpec, max_kernels: int | None, n_rows: int, n_outputs: int) -> int:
    """Kernels that are learned of so many rows: as many as were asked for, or 2.5 times the root of rows x outputs.

    A step has so many of them; with those that are left out of it they are more. Of two classes alone, many rows have
    more kernels than the limit by as many as a step leaves out.

    >>> learned_kernels(AnchorSpec("learned"), None, 5000, 1), learned_kernels(AnchorSpec("learned", 30), None, 5000, 1)
    (271, 30)
    """
    in_a_step, share = max(2.5 * math.sqrt(n_rows * n_outputs), _LEAST_KERNELS), dropout_share(n_rows, n_outputs)
    most = (_MOST_KERNELS + min(n_rows / 1000, _MORE_KERNELS)) / (1.0 - (_LEAST_DROPOUT if n_outputs == 1 else 0.0))
    automatic = round(min(in_a_step / (1.0 - share), most))
    count = min(automatic if spec.count is None else spec.count, max(1, n_rows // 2))
    return count if max_kernels is None else min(count, max_kernels)


def dropout_share(n_rows: int, n_outputs: int = 1) -> float:
    """Share of the kernels that a step leaves out: half of them with few rows, a tenth with many.

    >>> dropout_share(500), round(dropout_share(9000), 3), dropout_share(10**5), dropout_share(10**5, 3)
    (0.5, 0.249, 0.1, 0.3)
    >>> dropout_share(10**6, 3)
    0.1
    """
    done = math.log(n_rows / _FEW_ROWS) / math.log(_MANY_ROWS / _FEW_ROWS)
    share = _MOST_DROPOUT * min(1.0, max(0.0, 1.0 - done))
    return max(share, _SEVERAL_DROPOUT if n_outputs > 1 and n_rows <= _VAST_ROWS else _LEAST_DROPOUT)


def learn_settings(
    n_rows: int,
    n_kernels: int,
    metric: Metric,
    seed: int,
    n_outputs: int = 1,
    ridge: float = RIDGE,
    wide: bool = False,
) -> LearnSettings:
    """The settings for so many rows and kernels; `ridge` is times the rows, and `wide` is of the first bumps."""
    epochs = min(_EPOCHS * (_AT_ROWS / n_rows) ** _FALL, _MOST_SEEN / n_rows)
    epochs = round(min(max(epochs, _LEAST_EPOCHS), _MOST_EPOCHS))
    batch = min(_BATCH, max(_LEAST_BATCH, n_rows // _LEAST_STEPS))
    share = dropout_share(n_rows, n_outputs)
    widths = _WIDE_HALF_WIDTHS if wide else _HALF_WIDTHS
    return LearnSettings(
        n_kernels, epochs, batch, metric, ridge=ridge / n_rows, half_widths=widths, dropout=share, seed=seed
    )
