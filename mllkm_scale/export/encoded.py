"""The encoding of a table in exports: as an ONNX graph, as C, and in the description of an NPZ file.

ONNX   has an input for each column of the table, text for categories and numbers for the rest, and encodes them
C      has a function that encodes a row of numbers and codes, and one that gives the code of a text
NPZ    holds the machine behind the encoding, whose features the description says how to make
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mllkm_scale.data.tables.cells import MISSING
from mllkm_scale.data.tables.columns import BOOLEAN, CATEGORY, DATE
from mllkm_scale.data.tables.encoding import Encoding
from mllkm_scale.export.c_text import c_string, c_table
from mllkm_scale.export.onnx_machine import Graph
from mllkm_scale.export.single import require_single

__all__ = ["about_encoding", "c_encoding", "encoding_record", "onnx_inputs"]


def input_names(encoding: Encoding) -> list[str]:
    """Names of the inputs of a graph: those of the columns, if they are unique."""
    names = [column.name for column in encoding.columns.columns]
    taken = {"label", "scores", "features"}
    own = len(set(names)) == len(names) and all(name and name not in taken for name in names)
    return names if own else [f"column_{j}" for j in range(len(names))]


def onnx_inputs(graph: Graph, encoding: Encoding, given: type[np.floating[Any]]) -> tuple[str, list[Any]]:
    """The features (rows, p) of a table, in the type of the graph, and its inputs (rows, 1)."""
    helper, types = graph.onnx.helper, graph.onnx.TensorProto
    number = helper.np_dtype_to_tensor_dtype(np.dtype(given))
    parts, inputs = [], []
    for j, (name, column) in enumerate(zip(input_names(encoding), encoding.columns.columns, strict=True)):
        if not encoding.widths[j]:
            continue  # without information, and so without an input
        kind = types.STRING if column.kind == CATEGORY else number
        inputs.append(helper.make_tensor_value_info(name, kind, ["rows", 1]))
        table = encoding.tables[j]
        if table is not None and column.kind == CATEGORY:
            n_levels = len(column.levels)
            missing = [text for text in MISSING if text not in column.levels]
            codes = graph(
                "LabelEncoder",
                name,
                domain="ai.onnx.ml",
                keys_strings=[*column.levels, *missing],
                values_int64s=[*range(n_levels), *[n_levels + 1] * len(missing)],
                default_int64=n_levels,
            )
            flat = graph("Reshape", codes, np.array([-1]))
            parts.append(graph("Gather", np.ascontiguousarray(table).astype(graph.real), flat))
        else:
            value = graph.cast(name, graph.real)
            missing_value = graph("IsNaN", value)
            parts.append(graph("Where", missing_value, np.array(encoding.fills[j], graph.real), value))
            if encoding.marked[j]:
                parts.append(graph.cast(missing_value, graph.real))
            if table is not None:
                # The step is the number of edges not above the value; NaN is above none.
                reached = graph("GreaterOrEqual", value, np.asarray(encoding.edges[j], graph.real)[np.newaxis])
                step = graph.sum(graph.cast(reached, np.int64), 1, keep=True)
                step = graph("Where", missing_value, np.array(len(table) - 1), step)
                rows = np.ascontiguousarray(table).astype(graph.real)
                parts.append(graph("Gather", rows, graph("Reshape", step, np.array([-1]))))
    return graph("Concat", *parts, axis=1), inputs


def c_encoding(encoding: Encoding) -> str:
    """C tables and functions that encode a row, with names that begin with mllkm_."""
    columns = encoding.columns.columns
    counts = np.array([len(column.levels) if column.kind == CATEGORY else -1 for column in columns], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(np.maximum(counts, 0))])[:-1].astype(np.int64)
    edges = [np.empty(0) if own is None else own for own in encoding.edges or (None,) * len(columns)]
    edge_counts = np.array(list(map(len, edges)), dtype=np.int64)
    sizes = [0 if table is None else table.size for table in encoding.tables]
    places = np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
    features = np.concatenate([np.empty(0), *(table.ravel() for table in encoding.tables if table is not None)])
    levels = [level for column in columns for level in column.levels] or [""]
    names = ",\n".join(f"    {c_string(level)}" for level in levels)
    return "\n".join(
        [
            f"#define MLLKM_N_COLUMNS_OF_TABLE {len(columns)}\n",
            c_table("mllkm_column_levels", counts),
            c_table("mllkm_column_first_level", starts),
            c_table("mllkm_column_table", places),
            c_table("mllkm_column_width", encoding.widths),
            c_table("mllkm_column_fill", require_single(encoding.fills, "the fill of a column")),
            c_table("mllkm_column_steps", np.where(edge_counts > 0, edge_counts + 1, 0)),
            c_table("mllkm_column_step_width", encoding.step_widths),
            c_table("mllkm_column_edge", np.cumsum(edge_counts) - edge_counts),
            c_table("mllkm_edges", require_single(np.concatenate([*edges, np.zeros(1)]), "an edge of steps")),
            c_table("mllkm_level_features", require_single(features, "a feature of a level")),
            f"static const char *const mllkm_level_names[{len(levels)}] = {{\n{names}\n}};\n",
            _C_FUNCTIONS,
        ]
    )


_C_FUNCTIONS = """\
static inline float mllkm_code(int column, const char *text)
{
    long i;
    for (i = 0; i < mllkm_column_levels[column]; i++)
        if (strcmp(mllkm_level_names[mllkm_column_first_level[column] + i], text) == 0)
            return (float)i;
    return (float)mllkm_column_levels[column];
}

static inline void mllkm_encode(const float *row, float *x)
{
    int j;
    long i;
    for (j = 0; j < MLLKM_N_COLUMNS_OF_TABLE; j++) {
        long levels = mllkm_column_levels[j], width = mllkm_column_width[j], code;
        int missing = row[j] != row[j];
        if (levels < 0) {
            long of_steps = mllkm_column_step_width[j], steps = mllkm_column_steps[j];
            if (width > 0)
                x[0] = missing ? mllkm_column_fill[j] : row[j];
            if (width - of_steps > 1)
                x[1] = missing ? 1.0f : 0.0f;
            code = missing ? steps : 0;
            while (code < steps - 1 && row[j] >= mllkm_edges[mllkm_column_edge[j] + code])
                code++;
            for (i = 0; i < of_steps; i++)
                x[width - of_steps + i] = mllkm_level_features[mllkm_column_table[j] + code * of_steps + i];
        } else {
            code = missing ? levels + 1 : (row[j] >= 0.0f && row[j] < (float)levels ? (long)row[j] : levels);
            for (i = 0; i < width; i++)
                x[i] = mllkm_level_features[mllkm_column_table[j] + code * width + i];
        }
        x += width;
    }
}
"""


def about_encoding(encoding: Encoding, prefix: str) -> list[str]:
    """Lines of the comment of a C header about the functions that encode a row."""
    macro = prefix.upper()
    return [
        "The machine was trained on a table, a row of which is encoded first:",
        f"  void {prefix}_encode(const float *row, float *x);",
        f"      row: {macro}_N_COLUMNS_OF_TABLE values, NaN for a missing one; x: {macro}_N_FEATURES features",
        f"  float {prefix}_code(int column, const char *text);",
        "      the value in such a row of the text of a category, in UTF-8, without blanks around it",
        "Booleans are 0 and 1 in it, dates are days since 1970-01-01. Texts that stand for missing values, such as NA,",
        "are not known here: give NaN. The columns, from 0:",
        *(f"  {j:>3}  {_harmless(line)}" for j, line in enumerate(encoding.describe())),
        "",
    ]


def _harmless(text: str) -> str:
    """A text for a comment: characters that are not plain ASCII, or could end the comment, become _."""
    return "".join(sign if sign.isascii() and sign.isprintable() and sign not in "\\?*/" else "_" for sign in text)


def encoding_record(encoding: Encoding) -> dict[str, Any]:
    """The entry about the encoding in the description of an NPZ file."""
    notes = {CATEGORY: "text", BOOLEAN: "0 or 1", DATE: "days since 1970-01-01"}
    columns = []
    for j, column in enumerate(encoding.columns.columns):
        table, first = encoding.tables[j], int(encoding.starts[j])
        own: dict[str, Any] = {
            "name": column.name,
            "kind": column.kind,
            "value": notes.get(column.kind, "number"),
            "method": encoding.methods[j],
            "features": list(range(first, first + int(encoding.widths[j]))),
        }
        if table is not None and column.kind == CATEGORY:
            own |= {
                "levels": dict(zip(column.levels, table.tolist(), strict=False)),
                "other": table[-2].tolist(),
                "missing": table[-1].tolist(),
            }
        elif encoding.widths[j]:
            own |= {"fill": float(encoding.fills[j]), "marked": bool(encoding.marked[j])}
            edges = encoding.edges[j] if encoding.edges else None
            if edges is not None and table is not None:
                own["steps"] = {
                    "edges": edges.tolist(),
                    "features": table[:-1].tolist(),
                    "missing": table[-1].tolist(),
                }
        columns.append(own)
    return {
        "about": (
            "The arrays and test vectors are of the machine behind the encoding: x are its features, made of the"
            " columns of the table. A category gives the features of its level, of `other` for a text that is no level,"
            " or of `missing`. Any other column gives its value, or `fill` where it is missing; and if it is `marked`,"
            " 1 or 0 for missing or not. If it has `steps`, the features of its step follow, whose number is how many"
            " `edges` are not above the value; or those of `missing`. Blanks around a text do not count."
        ),
        "missing_texts": list(MISSING),
        "feature_names": list(encoding.feature_names),
        "columns": columns,
    }
