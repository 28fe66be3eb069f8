"""The directive `commands`: a section for each command of the program, with its usage, text, arguments and options."""

from __future__ import annotations

import inspect

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mllkm_scale.cli import cli


class Commands(SphinxDirective):
    """Sections made of what click knows, so that they cannot lag behind the program."""

    def run(self) -> list[nodes.Node]:
        return [self.section(name, command) for name, command in cli.commands.items() if not command.hidden]

    def section(self, name: str, command: click.Command) -> nodes.Node:
        title = f"mllkm {name}"
        context = click.Context(command, info_name=title)
        section = nodes.section(ids=[nodes.make_id(title)], names=[title])
        self.state.document.note_explicit_target(section)
        section += nodes.title("", title)
        section += nodes.literal_block(usage := _usage(context, command), usage, language="text")
        section += _prose(command)
        if isinstance(command, click.Group):
            section += [self.section(f"{name} {part}", child) for part, child in command.commands.items()]
        section += _options(context, command)
        return section


def _usage(context: click.Context, command: click.Command) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _prose(command: click.Command) -> list[nodes.Node]:
    """Paragraphs of the help text; those after click's mark for text as it stands keep their lines."""
    found: list[nodes.Node] = []
    for part in inspect.cleandoc(command.help or "").split("\f")[0].split("\n\n"):
        if part.startswith("\b\n"):
            text = part.removeprefix("\b\n")
            found.append(nodes.literal_block(text, text, language="text"))
        elif part.strip():
            found.append(nodes.paragraph("", "", *_inline(" ".join(part.split()))))
    return found


def _inline(text: str) -> list[nodes.Node]:
    """Text whose names between backticks are code."""
    pieces = text.split("`")
    kinds = (nodes.Text if number % 2 == 0 else lambda code: nodes.literal("", code) for number in range(len(pieces)))
    return [kind(piece) for kind, piece in zip(kinds, pieces, strict=True) if piece]


def _options(context: click.Context, command: click.Command) -> list[nodes.Node]:
    own = [parameter for parameter in command.params if parameter.name != "debug"]
    records = [parameter.get_help_record(context) for parameter in own if isinstance(parameter, click.Option)]
    if not any(records):
        return []
    options = nodes.option_list()
    for names, text in filter(None, records):
        group = nodes.option_group("", nodes.option("", nodes.option_string("", names)))
        options += nodes.option_list_item("", group, nodes.description("", nodes.paragraph("", "", *_inline(text))))
    return [options]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
