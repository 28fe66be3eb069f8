"""`mllkm completion`: a script that completes commands, options, choices and file names."""

from __future__ import annotations

import click

from mllkm_scale.cli.group import debug_option

__all__ = ["completion"]

VARIABLE = "_MLLKM_COMPLETE"


@click.command(short_help="Print the script that completes mllkm in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@debug_option
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, their choices, and file names in SHELL.

    Nothing is installed: put the line below where your shell reads it when it starts.

    \b
    Examples:
      mllkm completion bash > ~/.local/share/bash-completion/completions/mllkm
      mllkm completion zsh > ~/.zfunc/_mllkm
      mllkm completion fish > ~/.config/fish/completions/mllkm.fish
      source <(mllkm completion bash)
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    # The template itself: `source` of click checks the version of the first bash on the PATH, which may differ.
    script = made(context.find_root().command, {}, "mllkm", VARIABLE)
    click.echo(script.source_template % script.source_vars())
