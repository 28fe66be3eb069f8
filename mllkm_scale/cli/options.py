"""Options for all parameters of a training run or a stream, made from the fields of their dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_type_hints

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from mllkm_scale.base.class_weight import read_class_weight
from mllkm_scale.cli.parsers import (
    Parser,
    parse_components,
    parse_metric,
    parse_number,
    parse_size,
)
from mllkm_scale.errors import ParameterError
from mllkm_scale.kernels.anchors import read_anchors
from mllkm_scale.kernels.gammas import read_gammas
from mllkm_scale.online.params import SHARED, OnlineParams
from mllkm_scale.params import PRESETS, Params, checked

__all__ = ["data_set_options", "given_parameters", "given_stream_parameters", "stream_options", "training_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

LEFT_OUT = frozenset({"verbose"})
FLAGS = {
    "memory_budget": ("--memory", "--memory-budget"),
    "n_jobs": ("--n-jobs", "--jobs"),
    "random_state": ("--random-state", "--seed"),
}
PARSERS: dict[str, tuple[Parser, str]] = {
    "C": (parse_number(float, auto="auto"), "auto|NUMBER"),
    "class_weight": (read_class_weight, "balanced|LABEL:WEIGHT,..."),
    "gammas": (read_gammas, "auto|G,G,..."),
    "anchors": (read_anchors, "auto|learned|learned:N|learned+all|learned+N|all|N|kmeans:N|FILE.npy"),
    "metric": (parse_metric, "auto|diagonal|full|N|none"),
    "ridge": (parse_number(float, auto="auto"), "auto|NUMBER"),
    "local_bias": (parse_number(float, auto="auto"), "auto|NUMBER"),
    "n_components": (parse_components, "N|SHARE"),
    "max_bytes": (parse_size, "SIZE"),
    "memory_budget": (parse_size, "SIZE"),
    "scratch_dir": (str, "DIR"),
}


def data_set_options(command: Command) -> Command:
    """Give a command the options that name the data sets of samples, labels and weights."""
    x = click.option("--x", default="X", show_default=True, metavar="NAME", help="Data set of the samples.")
    y = click.option("--y", default="y", show_default=True, metavar="NAME", help="Data set of the labels.")
    help = "Data set of the weights of the rows in the loss (default: one each)."
    return x(y(click.option("--sample-weight", metavar="NAME", help=help)(command)))


def training_options(command: Command) -> Command:
    """Give a command --preset and one option for each field of `Params` except `verbose`."""
    for spec in reversed(dataclasses.fields(Params)):
        if spec.name not in LEFT_OUT:
            command = _option(spec, Params)(command)
    preset = click.option(
        "--preset",
        type=click.Choice(sorted(PRESETS)),
        help="Named settings, which other options override. paper: the problem and settings of the paper.",
    )
    return preset(command)


def given_parameters(context: click.Context) -> dict[str, Any]:
    """The parameters of the preset and of the options, for `resolve` or `train`.

    An option overrides the preset, even if it equals the default.
    """
    names = [spec.name for spec in dataclasses.fields(Params) if spec.name not in LEFT_OUT]
    preset = context.params.get("preset")
    return (PRESETS[preset] if preset else {}) | _given(context, names)


def stream_options(command: Command) -> Command:
    """Give a command one option for each parameter of online learning."""
    shared = [spec for spec in dataclasses.fields(Params) if spec.name in SHARED]
    for owner, specs in ((Params, shared), (OnlineParams, dataclasses.fields(OnlineParams))):
        for spec in reversed(specs):
            command = _option(spec, owner)(command)
    return command


def given_stream_parameters(context: click.Context) -> dict[str, Any]:
    """The parameters of the options, for `stream`."""
    return _given(context, [*SHARED, *(spec.name for spec in dataclasses.fields(OnlineParams))])


def _given(context: click.Context, names: Sequence[str]) -> dict[str, Any]:
    return {
        name: context.params[name]
        for name in names
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }


def _option(spec: dataclasses.Field[Any], owner: type[Params | OnlineParams]) -> Callable[[Command], Command]:
    flags = FLAGS.get(spec.name, (f"--{spec.name.replace('_', '-')}",))
    help = _help(spec)
    hint = get_type_hints(owner)[spec.name]
    if hint is bool:
        both = f"{flags[0]}/--no-{flags[0].removeprefix('--')}"
        return click.option(both, spec.name, default=None, help=help)
    if spec.metadata["choices"] is not None:
        choice = click.Choice(spec.metadata["choices"], case_sensitive=False)
        return click.option(*flags, spec.name, type=choice, help=help)
    parser, metavar = PARSERS.get(spec.name) or _by_type(hint)
    callback, complete = _parsed(parser, owner), _completed(metavar)
    return click.option(*flags, spec.name, metavar=metavar, callback=callback, shell_complete=complete, help=help)


def _completed(metavar: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem[Any]]]:
    """Shell completions: the words of the metavar, and files or folders if it names them."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem[Any]]:
        kinds = metavar.split("|")
        words = [CompletionItem(word) for word in kinds if word.isalpha() and word.islower() and word.startswith(begun)]
        paths = {"DIR": "dir", "FILE.npy": "file"}
        return words or [CompletionItem(begun, type=paths[kind]) for kind in kinds if kind in paths]

    return complete


def _by_type(hint: Any) -> tuple[Parser, str]:
    kinds = getattr(hint, "__args__", (hint,))
    words = {"none": None} if type(None) in kinds else {}
    if float in kinds:
        return parse_number(float, **words), "NUMBER"
    if int in kinds:
        return parse_number(int, **words), "N"
    return str, "TEXT"


def _parsed(
    parser: Parser, owner: type[Params | OnlineParams]
) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Callback of an option: its value, or a usage error that names the option."""

    def callback(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        if text is None:
            return None
        try:
            value = parser(text.strip())
            given = {str(parameter.name): value}
            _ = checked(**given) if owner is Params else OnlineParams(**given).check()
        except ParameterError as error:
            raise click.BadParameter(str(error), context, parameter) from None
        return value

    return callback


def _help(spec: dataclasses.Field[Any]) -> str:
    text = f"{spec.metadata['help'][0].upper()}{spec.metadata['help'][1:]}."
    if spec.default is None:
        return text
    return f"{text}  [default: {_shown(spec.default)}]"


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return str(default)
