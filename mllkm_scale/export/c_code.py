"""The functions of the C header: prepare a row, add up its scores, and choose the largest one.

The code is valid C99 and C++. Sizes are macros, so that every array on the stack has a fixed size. Indices are `long`,
because `int` may have 16 bits. Many terms are added up in blocks, or by Kahan's compensated sum: most of the error of
plain float sums comes from the projection of many features, and from the sum over the kernels.
"""

from __future__ import annotations

import numpy as np

from mllkm_scale.export.c_text import c_float
from mllkm_scale.export.layout import Layout
from mllkm_scale.export.single import require_single
from mllkm_scale.kernels.maps import falls_exponentially, uses_plain_distance
from mllkm_scale.model.calibration import TEMPERATURE, Calibration

__all__ = ["functions", "probabilities"]

_HEAD = """\
/* The name of class i, a number as returned by mllkm_predict; an empty text for other numbers. */
static inline const char *mllkm_class_name(int i)
{
    return i >= 0 && i < MLLKM_N_CLASSES ? mllkm_classes[i] : "";
}

/* Adds a term to a sum, and keeps the rounding error for the next term. */
static inline void mllkm_plus(float *sum, float *lost, float term)
{
    const float rest = term - *lost, grown = *sum + rest;
    *lost = (grown - *sum) - rest;
    *sum = grown;
}
"""

_LEVEL = """
/* The share of samples below v, for a column with knots: linear between them, constant beyond. */
static inline float mllkm_level(long j, float v)
{
    long low = mllkm_knot_starts[j], high = mllkm_knot_starts[j + 1] - 1;
    if (high < low)
        return v;
    if (!(v > mllkm_knot_values[low]))
        return mllkm_knot_levels[low];
    if (v >= mllkm_knot_values[high])
        return mllkm_knot_levels[high];
    while (high - low > 1) {
        const long middle = (low + high) / 2;
        if (mllkm_knot_values[middle] <= v)
            low = middle;
        else
            high = middle;
    }
    return mllkm_knot_levels[low] + (v - mllkm_knot_values[low]) / (mllkm_knot_values[high] - mllkm_knot_values[low])
                                        * (mllkm_knot_levels[high] - mllkm_knot_levels[low]);
}
"""

_PREPARE = """
/* The prepared row: scaled, projected, relative to the centre of the machine. */
static inline void mllkm_prepare(const float *x, float *z)
{
"""

_NORM = """\
    /* Divided by the largest entry first, so that no square overflows or vanishes. */
    float largest = 0.0f, norm = 0.0f, lost = 0.0f;
    for (j = 0; j < MLLKM_N_FEATURES; j++)
        if (fabsf(x[j]) > largest)
            largest = fabsf(x[j]);
    if (largest == 0.0f)
        largest = 1.0f;
    for (j = 0; j < MLLKM_N_FEATURES; j++)
        mllkm_plus(&norm, &lost, (x[j] / largest) * (x[j] / largest));
    norm = norm > 0.0f ? sqrtf(norm) : 1.0f;
"""

_DIAGONAL = """\
    for (j = 0; j < @N@; j++)
        z[j] = @V@ * mllkm_factors[j] + mllkm_shift[j];
}
"""

_PROJECTION = """\
    const float *w = mllkm_matrix;
    float part[MLLKM_DIM];
    long i, stop;
    for (i = 0; i < MLLKM_DIM; i++)
        z[i] = mllkm_shift[i];
    for (j = 0; j < @N@;) {
        stop = j + 32 < @N@ ? j + 32 : @N@;
        for (i = 0; i < MLLKM_DIM; i++)
            part[i] = 0.0f;
        for (; j < stop; j++, w += MLLKM_DIM) {
            const float v = @V@;
            for (i = 0; i < MLLKM_DIM; i++)
                part[i] += v * w[i];
        }
        for (i = 0; i < MLLKM_DIM; i++)
            z[i] += part[i];
    }
}
"""

_SCORES = """
/* The scores of a row: one for two classes, positive for the second; otherwise one per class, and the largest wins.
   All are NaN if the row has NaN, infinity or values that are too large. */
static inline void mllkm_scores(const float *x, float *scores)
{
    float z[MLLKM_DIM], lost[MLLKM_N_SCORES];
    long j, k;
    for (j = 0; j < MLLKM_N_FEATURES; j++)
        if (!(x[j] - x[j] == 0.0f)) {
            for (k = 0; k < MLLKM_N_SCORES; k++)
                scores[k] = NAN;
            return;
        }
    mllkm_prepare(x, z);
    for (k = 0; k < MLLKM_N_SCORES; k++)
        scores[k] = lost[k] = 0.0f;
    mllkm_add(z, scores, lost);
}

/* The number of the class of a row, from 0; -1 if the scores are NaN. */
static inline int mllkm_predict(const float *x)
{
    float scores[MLLKM_N_SCORES];
    int k, best = 0;
    mllkm_scores(x, scores);
    for (k = 0; k < MLLKM_N_SCORES; k++) {
        if (!(scores[k] - scores[k] == 0.0f))
            return -1;
        if (scores[k] > scores[best])
            best = k;
    }
    return MLLKM_N_SCORES > 1 ? best : scores[0] > 0.0f;
}
"""

_GLOBAL = """
/* sum over m of h_m (<z - c_m, slope_m> + level_m) */
static inline void mllkm_add(const float *z, float *scores, float *lost)
{
    const float *anchor = mllkm_anchors, *slope = mllkm_slopes, *level = mllkm_levels;
    float local[MLLKM_N_SCORES];
    long m, l, k, stop;
    for (m = 0; m < MLLKM_N_KERNELS; m++, anchor += MLLKM_DIM, level += MLLKM_N_SCORES) {
        float squared = 0.0f, h;
        for (l = 0; l < MLLKM_DIM;) {
            float part = 0.0f;
            stop = l + 32 < MLLKM_DIM ? l + 32 : MLLKM_DIM;
            for (; l < stop; l++)
                part += (z[l] - anchor[l]) * (z[l] - anchor[l]);
            squared += part;
        }
        h = @H@;
        if (h <= 0.0f) {
            slope += (long)MLLKM_DIM * MLLKM_N_SCORES;
            continue;
        }
        for (k = 0; k < MLLKM_N_SCORES; k++)
            local[k] = level[k];
        for (l = 0; l < MLLKM_DIM; l++, slope += MLLKM_N_SCORES) {
            const float offset = z[l] - anchor[l];
            for (k = 0; k < MLLKM_N_SCORES; k++)
                local[k] += offset * slope[k];
        }
        for (k = 0; k < MLLKM_N_SCORES; k++)
            mllkm_plus(&scores[k], &lost[k], h * local[k]);
    }
}
"""

_COMPONENTS = """
/* sum over m and l of h_ml ((z_l - c_ml) slope_ml + level_m) */
static inline void mllkm_add(const float *z, float *scores, float *lost)
{
    const float *anchor = mllkm_anchors, *slope = mllkm_slopes, *level = mllkm_levels;
    float local[MLLKM_N_SCORES];
    long m, l, k;
    for (m = 0; m < MLLKM_N_KERNELS; m++, anchor += MLLKM_DIM, level += MLLKM_N_SCORES) {
        for (k = 0; k < MLLKM_N_SCORES; k++)
            local[k] = 0.0f;
        for (l = 0; l < MLLKM_DIM; l++, slope += MLLKM_N_SCORES) {
            const float offset = z[l] - anchor[l], h = @H@;
            if (h <= 0.0f)
                continue;
            for (k = 0; k < MLLKM_N_SCORES; k++)
                local[k] += h * (offset * slope[k] + level[k]);
        }
        for (k = 0; k < MLLKM_N_SCORES; k++)
            mllkm_plus(&scores[k], &lost[k], local[k]);
    }
}
"""

_TABLES = """
/* sum over l of f_l(z_l), each by the polynomial of the cell of z_l; beyond the cells of a feature f_l is 0 */
static inline void mllkm_add(const float *z, float *scores, float *lost)
{
    long l, k;
    for (l = 0; l < MLLKM_DIM; l++) {
        const float *edge = mllkm_edges + mllkm_starts[l] + l, *c;
        long n = mllkm_starts[l + 1] - mllkm_starts[l], cell = 0;
        float t = z[l];
        if (n == 0 || t < edge[0] || t >= edge[n])
            continue;
        while (n > 1) {
            const long half = n / 2;
            if (edge[cell + half] <= t)
                cell += half;
            n -= half;
        }
        cell += mllkm_starts[l];
        t = (t - mllkm_variables[2 * cell]) * mllkm_variables[2 * cell + 1];
        c = mllkm_coefficients + cell * MLLKM_N_SCORES * (MLLKM_DEGREE + 1);
        for (k = 0; k < MLLKM_N_SCORES; k++, c += MLLKM_DEGREE + 1)
            mllkm_plus(&scores[k], &lost[k], @P@);
    }
}
"""


_PROBABILITIES = """
/* The probability of each class; all are NaN if the scores are. */
static inline void mllkm_probabilities(const float *x, float *p)
{
    mllkm_scores(x, p);
@P@}
"""

_SIGMOID = """\
    {
        const float f = @SLOPE@ * p[0], e = expf(-fabsf(f)), more = 1.0f / (1.0f + e), less = e * more;
        p[0] = f > 0.0f ? less : more;
        p[1] = f > 0.0f ? more : less;
    }
"""

_SOFTMAX = """\
    {
        float largest = p[0], sum = 0.0f;
        long k;
        for (k = 1; k < MLLKM_N_CLASSES; k++)
            if (p[k] > largest)
                largest = p[k];
        for (k = 0; k < MLLKM_N_CLASSES; k++) {
            p[k] = expf(@SLOPE@ * (p[k] - largest));
            sum += p[k];
        }
        for (k = 0; k < MLLKM_N_CLASSES; k++)
            p[k] /= sum;
    }
"""

_ISOTONIC = """\
    {
        const float f = p[0];
        long low = 0, high = MLLKM_N_KNOTS - 1;
        if (!(f - f == 0.0f)) {
            p[1] = f;
            return;
        }
        if (f >= mllkm_knots[high])
            low = high;
        else if (f <= mllkm_knots[low])
            high = low;
        while (high - low > 1) {
            const long middle = (low + high) / 2;
            if (mllkm_knots[middle] <= f)
                low = middle;
            else
                high = middle;
        }
        p[1] = mllkm_probability[low];
        if (high > low)
            p[1] += (f - mllkm_knots[low]) / (mllkm_knots[high] - mllkm_knots[low])
                    * (mllkm_probability[high] - mllkm_probability[low]);
        p[0] = 1.0f - p[1];
    }
"""


def probabilities(calibration: Calibration, n_scores: int) -> str:
    """The function of the probabilities; names begin with mllkm and MLLKM."""
    steps = _SOFTMAX if n_scores > 1 else _SIGMOID if calibration.method == TEMPERATURE else _ISOTONIC
    slope = c_float(float(require_single(np.array([calibration.slope]), "the slope of the calibration")[0]))
    return _PROBABILITIES.replace("@P@", steps).replace("@SLOPE@", slope)


def functions(layout: Layout, degree: int | None) -> str:
    """All functions, for tables of this degree or kernel by kernel; names begin with mllkm and MLLKM."""
    preparation = layout.preparation
    value = "x[j]" if preparation.columns is None else "x[mllkm_columns[j]]"
    value += " / largest / norm" if preparation.unit_norm else ""
    level = "(" if preparation.knots is None else "mllkm_level(j, "
    centred = f"{level}{value} - mllkm_centre[j])"
    number = "MLLKM_N_FEATURES" if preparation.columns is None else "MLLKM_N_COLUMNS"
    prepare = _HEAD + ("" if preparation.knots is None else _LEVEL) + _PREPARE
    prepare += "    long j;\n" + (_NORM if preparation.unit_norm else "")
    step = _DIAGONAL if preparation.matrix is None else _PROJECTION
    prepare += step.replace("@V@", centred).replace("@N@", number)
    if degree is not None:
        add = _TABLES.replace("@P@", _horner(degree))
    else:
        add = (_COMPONENTS if layout.componentwise else _GLOBAL).replace("@H@", _bump(layout))
    return prepare + add + _SCORES


def _bump(layout: Layout) -> str:
    plain = "fabsf(offset)" if layout.componentwise else "sqrtf(squared)"
    distance = plain if uses_plain_distance(layout.map) else "offset * offset" if layout.componentwise else "squared"
    term = f"mllkm_gammas[m] * {distance}"
    return f"expf(-({term}))" if falls_exponentially(layout.map) else f"1.0f - {term}"


def _horner(degree: int) -> str:
    text = f"c[{degree}]"
    for power in range(degree - 1, -1, -1):
        text = f"c[{power}] + t * {text}" if power == degree - 1 else f"c[{power}] + t * ({text})"
    return text
