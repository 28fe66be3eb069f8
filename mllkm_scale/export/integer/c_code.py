"""The functions of the integer header: the arithmetic of `IntegerMachine` in C99 without floats.

An int may have 16 bits, so every product and sum has explicit types. Tables are read by macros, as the flash of AVR
requires. Right shifts of negative numbers are arithmetic in all relevant compilers; otherwise the header does not
compile.
"""

from __future__ import annotations

from mllkm_scale.export.integer.bump_table import BumpTable
from mllkm_scale.export.integer.machine import IntegerMachine

__all__ = ["HEAD", "functions", "sizes"]

HEAD = """\
#include <stdint.h>

#if defined(__AVR__) && !defined(MLLKM_NO_PROGMEM)
#include <avr/pgmspace.h>
#define MLLKM_TABLE PROGMEM
#define MLLKM_READ_8(p) pgm_read_byte(p)
#define MLLKM_READ_16(p) pgm_read_word(p)
#define MLLKM_READ_32(p) pgm_read_dword(p)
#else
#define MLLKM_TABLE
#define MLLKM_READ_8(p) (*(p))
#define MLLKM_READ_16(p) (*(p))
#define MLLKM_READ_32(p) (*(p))
#endif

/* Right shifts of negative numbers are arithmetic. */
typedef char mllkm_shifts_are_arithmetic[((int32_t)-3 >> 1) == -2 ? 1 : -1];
"""

_LEVEL = """
/* The level of input v in column j: linear between knots, constant beyond them; v itself if there are none. */
static inline int32_t mllkm_level(uint16_t j, int32_t v)
{
    uint16_t low = MLLKM_READ_16(mllkm_knot_starts + j), high = MLLKM_READ_16(mllkm_knot_starts + j + 1);
    int32_t first, below, above;
    if (low == high)
        return v;
    high--;
    first = (int16_t)MLLKM_READ_16(mllkm_knot_values + low);
    if (v <= first)
        return (int32_t)(uint16_t)MLLKM_READ_16(mllkm_knot_levels + low);
    if (v >= (int16_t)MLLKM_READ_16(mllkm_knot_values + high))
        return (int32_t)(uint16_t)MLLKM_READ_16(mllkm_knot_levels + high);
    while (high - low > 1) {
        const uint16_t middle = (uint16_t)(low + (high - low) / 2);
        if ((int16_t)MLLKM_READ_16(mllkm_knot_values + middle) <= v)
            low = middle;
        else
            high = middle;
    }
    first = (int16_t)MLLKM_READ_16(mllkm_knot_values + low);
    below = (int32_t)(uint16_t)MLLKM_READ_16(mllkm_knot_levels + low);
    above = (int32_t)(uint16_t)MLLKM_READ_16(mllkm_knot_levels + high);
    return below + (v - first) * (above - below) / ((int16_t)MLLKM_READ_16(mllkm_knot_values + high) - first);
}
"""

_FIXED = """
/* v 2^-downs, rounded, and within the limit of a prepared feature. */
static inline int16_t mllkm_fixed(int32_t v, uint8_t downs)
{
    v = (v + (((int32_t)1 << downs) >> 1)) >> downs;
    if (v > MLLKM_LIMIT)
        return MLLKM_LIMIT;
    return (int16_t)(v < -MLLKM_LIMIT ? -MLLKM_LIMIT : v);
}

/* The prepared row: scaled, projected, relative to the centre of the machine. */
static inline void mllkm_prepare(const mllkm_input *x, int16_t *z)
{
"""

_DIAGONAL = """\
    uint16_t @AT@j;
    for (j = 0; j < MLLKM_DIM; j++) {
        const int32_t factor = (int16_t)MLLKM_READ_16(mllkm_matrix + j);
        const int32_t v = @V@;
        z[j] = mllkm_fixed((int32_t)MLLKM_READ_32(mllkm_shift + j) + v * factor, MLLKM_READ_8(mllkm_downs + j));
    }
}
"""

_PROJECTION = """\
    const @WEIGHT@ *w = mllkm_matrix;
    int32_t sums[MLLKM_DIM];
    uint16_t @AT@i, j;
    for (i = 0; i < MLLKM_DIM; i++)
        sums[i] = (int32_t)MLLKM_READ_32(mllkm_shift + i);
    for (j = 0; j < MLLKM_N_COLUMNS; j++, w += @ROW@) {
        const int32_t v = @V@;
        if (v != 0)
            for (i = 0; i < MLLKM_DIM; i++)
                sums[i] += v * @NUMBER@;
    }
    for (i = 0; i < MLLKM_DIM; i++)
        z[i] = mllkm_fixed(sums[i], MLLKM_READ_8(mllkm_downs + i));
}
"""

_CLIPPED = """
/* An input, clipped to the range for which sums fit into 32 bits. */
static inline int32_t mllkm_clipped(int32_t v)
{
    return v < MLLKM_LOW ? MLLKM_LOW : v > MLLKM_HIGH ? MLLKM_HIGH : v;
}
"""

_SQUARED = """
/* The bump of kernel m at the square d of a distance; 0 beyond its reach. */
static inline uint16_t mllkm_bump(uint16_t m, uint32_t d)
{
    const uint32_t height = (uint32_t)@MANTISSA@ << MLLKM_SPARE;
    d >>= MLLKM_READ_8(mllkm_exponents + m);
    return d < height ? (uint16_t)(height - d) : 0;
}
"""

_TABLE = """
/* The bump of kernel m at the square d of a distance: the table holds @STEPS@ entries for each octave. */
static inline uint16_t mllkm_bump(uint16_t m, uint32_t d)
{
    int16_t octave = (int8_t)MLLKM_READ_8(mllkm_exponents + m);
    uint16_t place, high;
    if (d == 0)
        return 32768U;
    for (; d < 0x1000000UL; d <<= 8)
        octave = (int16_t)(octave - 8);
    for (; d < 0x80000000UL; d <<= 1)
        octave--;
    d = (d >> 16) * ((uint32_t)@MANTISSA@ << MLLKM_SPARE);
    if (d < 0x80000000UL) {
        d <<= 1;
        octave--;
    }
    if (octave < 0)
        return 32768U;
    if (octave >= MLLKM_OCTAVES)
        return 0;
    place = (uint16_t)((d >> (31 - MLLKM_STEPS)) & ((1U << MLLKM_STEPS) - 1));
    place = (uint16_t)(place + ((uint32_t)(uint16_t)octave << MLLKM_STEPS));
    d = (d >> (16 - MLLKM_STEPS)) & 0x7fffUL;
    high = MLLKM_READ_16(mllkm_bumps + place);
    return (uint16_t)(high - (((uint32_t)(high - MLLKM_READ_16(mllkm_bumps + place + 1)) * d) >> 15));
}
"""

_PAIRS = """
/* Number i of 4 bits, of which there are two in a byte. */
static inline int16_t mllkm_of_pair(const uint8_t *pairs, uint16_t i)
{
    const uint8_t two = MLLKM_READ_8(pairs + (i >> 1));
    return (int16_t)((i & 1 ? two >> 4 : two & 15) - 8);
}
"""

_SCORES = """
/* The scores of a row times 2^MLLKM_SCORE_BITS: one for two classes, positive for the second; otherwise one per class,
   and the first largest one wins. */
static inline void mllkm_scores(const mllkm_input *x, int32_t *scores)
{
    const @CONSTANT@ *anchor = mllkm_anchors, *level = mllkm_levels;
    const @SLOPE@ *slope = mllkm_slopes;
    int16_t z[MLLKM_DIM];
    uint16_t l, m;
    uint16_t k;
    mllkm_prepare(x, z);
    for (k = 0; k < MLLKM_N_SCORES; k++)
        scores[k] = 0;
    for (m = 0; m < MLLKM_N_KERNELS; m++) {
        const uint8_t downs = MLLKM_READ_8(mllkm_score_downs + m);
        const int32_t half = ((int32_t)1 << downs) >> 1;
@KERNEL@        anchor += MLLKM_DIM;
        slope += @SLOPES@;
        level += MLLKM_N_SCORES;
    }
}

/* The number of the class of a row, from 0. */
static inline int mllkm_predict(const mllkm_input *x)
{
    int32_t scores[MLLKM_N_SCORES];
    uint16_t k, best = 0;
    mllkm_scores(x, scores);
    for (k = 1; k < MLLKM_N_SCORES; k++)
        if (scores[k] > scores[best])
            best = k;
    return MLLKM_N_SCORES > 1 ? (int)best : scores[0] > 0;
}
"""

_GLOBAL = """\
        int16_t o[MLLKM_DIM];
        uint32_t squared = 0;
        int32_t h;
        for (l = 0; l < MLLKM_DIM; l++) {
            o[l] = (int16_t)(z[l] - (@CONSTANT@)@READ@(anchor + l) * MLLKM_ANCHOR_UNIT);
            squared += (uint32_t)((int32_t)o[l] * o[l]);
        }
        h = mllkm_bump(m, squared);
        if (h != 0)
            for (k = 0; k < MLLKM_N_SCORES; k++) {
                const uint16_t first = (uint16_t)(k * (uint16_t)MLLKM_DIM);
                int32_t p = (int32_t)(@CONSTANT@)@READ@(level + k) * MLLKM_LEVEL_UNIT;
                for (l = 0; l < MLLKM_DIM; l++)
                    p += (int32_t)o[l] * @WEIGHT@;
                p = (p + MLLKM_PRODUCT_HALF) >> MLLKM_PRODUCT_SHIFT;
                scores[k] += (h * p + half) >> downs;
            }
"""

_COMPONENTS = """\
        int32_t sums[MLLKM_N_SCORES];
        uint32_t bumps = 0;
        for (k = 0; k < MLLKM_N_SCORES; k++)
            sums[k] = 0;
        for (l = 0; l < MLLKM_DIM; l++) {
            const int16_t o = (int16_t)(z[l] - (@CONSTANT@)@READ@(anchor + l) * MLLKM_ANCHOR_UNIT);
            const uint16_t h = mllkm_bump(m, (uint32_t)((int32_t)o * o));
            const int32_t moved = ((int32_t)h * o + 16384) >> 15;
            bumps += h;
            if (h != 0)
                for (k = 0; k < MLLKM_N_SCORES; k++) {
                    const uint16_t first = (uint16_t)(k * (uint16_t)MLLKM_DIM);
                    sums[k] += moved * @WEIGHT@;
                }
        }
        bumps >>= 15 - MLLKM_LEVEL_SHIFT;
        for (k = 0; k < MLLKM_N_SCORES; k++) {
            const int32_t p = sums[k] + (int32_t)bumps * (@CONSTANT@)@READ@(level + k);
            scores[k] += (p + half) >> downs;
        }
"""


def functions(machine: IntegerMachine) -> str:
    """All functions; names begin with mllkm and MLLKM."""
    preparation, bumps = machine.preparation, machine.bumps
    wide = preparation.inputs.kind == "int16_t"
    projected = preparation.matrix.ndim == 2
    constants = machine.constants
    value = "x[j]"
    if "gaps" in constants:
        value = "x[at += MLLKM_READ_8(mllkm_gaps + j)]"
    elif "columns" in constants:
        value = f"x[MLLKM_READ_{8 * constants['columns'].itemsize}(mllkm_columns + j)]"
    if preparation.ups is not None:
        value = f"mllkm_clipped({value} * ((int32_t)1 << MLLKM_READ_8(mllkm_ups + j)))"
    elif wide and preparation.within[1] < 32767:
        value = f"mllkm_clipped({value})"
    value = value if preparation.knots is None else f"mllkm_level(j, {value})"
    small = constants["matrix"].itemsize == 1
    step = (_PROJECTION if projected else _DIAGONAL).replace("@V@", value)
    step = step.replace("@AT@", "at = 0, " if "gaps" in constants else "")
    halves = preparation.matrix_bits == 4
    read = "(int8_t)MLLKM_READ_8(w + i)" if small else "(int16_t)MLLKM_READ_16(w + i)"
    step = step.replace("@NUMBER@", "mllkm_of_pair(w, i)" if halves else read)
    step = step.replace("@WEIGHT@", "uint8_t" if halves else "int8_t" if small else "int16_t")
    step = step.replace("@ROW@", "(MLLKM_DIM + 1) / 2" if halves else "MLLKM_DIM")
    mantissa = f"MLLKM_READ_{8 * constants['mantissas'].itemsize}(mllkm_mantissas + m)"
    if isinstance(bumps, BumpTable):
        bump = _TABLE.replace("@STEPS@", str(2**bumps.steps))
    else:
        bump = _SQUARED
    scores = _SCORES.replace("@KERNEL@", _COMPONENTS if machine.componentwise else _GLOBAL)
    pairs = machine.slope_bits == 4
    weight = "mllkm_of_pair(slope, (uint16_t)(first + l))" if pairs else "(@CONSTANT@)@READ@(slope + first + l)"
    scores = scores.replace("@WEIGHT@", weight).replace("@SLOPE@", "uint8_t" if pairs else "@CONSTANT@")
    count = "MLLKM_SLOPE_PAIRS" if pairs else "MLLKM_DIM * (uint16_t)MLLKM_N_SCORES"
    scores = scores.replace("@SLOPES@", count)
    scores = scores.replace("@CONSTANT@", f"int{machine.bits}_t").replace("@READ@", f"MLLKM_READ_{machine.bits}")
    parts = [
        _PAIRS if pairs or halves else "",
        _CLIPPED if "mllkm_clipped" in value else "",
        _LEVEL if preparation.knots is not None else "",
        _FIXED + step,
        bump.replace("@MANTISSA@", mantissa),
        scores,
    ]
    return "".join(parts)


def sizes(machine: IntegerMachine) -> dict[str, int]:
    """The macros of the functions."""
    preparation, bumps = machine.preparation, machine.bumps
    found = {
        "N_KERNELS": machine.n_kernels,
        "DIM": machine.n_features,
        "LIMIT": preparation.limit,
        "LOW": preparation.within[0],
        "HIGH": preparation.within[1],
        "SCORE_BITS": machine.score_bits,
        "ANCHOR_UNIT": 1 << machine.anchor_shift,
        "SPARE": bumps.spare,
    }
    if preparation.matrix.ndim == 2:
        found["N_COLUMNS"] = len(preparation.columns)
    if isinstance(bumps, BumpTable):
        found |= {"STEPS": bumps.steps, "OCTAVES": (len(bumps.entries) - 1) >> bumps.steps}
    if machine.slope_bits == 4:
        found["SLOPE_PAIRS"] = machine.constants["slopes"].shape[1]
    if machine.componentwise:
        return found | {"LEVEL_SHIFT": machine.level_shift}
    half = (1 << machine.product_shift) >> 1
    shifts = {"PRODUCT_SHIFT": machine.product_shift, "PRODUCT_HALF": half}
    return found | shifts | {"LEVEL_UNIT": 1 << machine.level_shift}
