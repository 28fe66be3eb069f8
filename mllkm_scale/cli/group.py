"""Shared parts of all commands: errors as one line with a remedy, exit codes, --debug, a clean end on signals.

Exit codes: 0 done, 1 unexpected error, 2 usage error or a parameter that cannot work, 3 to 10 the code of the
error (`mllkm_scale.errors`), 130 ended by Ctrl-C, 143 ended by SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import click

from mllkm_scale.errors import MLLKMError
from mllkm_scale.printable import printable

__all__ = ["CommandGroup", "Invocation", "Terminated", "debug_option", "refuse_both_starts", "say"]

INTERRUPTED, TERMINATED = 130, 143


class Terminated(BaseException):
    """SIGTERM arrived: open resources are closed while this propagates."""


@dataclass
class Invocation:
    """The invocation of the program; the object of the context of click."""

    arguments: tuple[str, ...] = ()
    debug: bool = False


def _set_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Invocation).debug = True


debug_option = click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_debug,
    help="Show the traceback of an error.",
)


def refuse_both_starts(what: str, context: click.Context, *, resume: bool, overwrite: bool) -> None:
    """Refuse a command that should both continue a training run, and replace it."""
    if resume and overwrite:
        raise click.UsageError(f"--resume continues {what} and --overwrite replaces it: give one of them", context)


class CommandGroup(click.Group):
    """A group that ends with one line on stderr and the exit code of an error, and lists commands in the given
    order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, in the order of use."""
        return list(self.commands)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> NoReturn:
        """Run a command line and exit."""
        arguments = sys.argv[1:] if args is None else list(args)
        invocation = Invocation(tuple(arguments))
        extra |= {"standalone_mode": False, "obj": invocation}
        try:
            with _termination():
                code = super().main(arguments, *rest, **extra)
            code = code if isinstance(code, int) else 0
        except BaseException as error:
            if isinstance(error, SystemExit):
                raise
            if invocation.debug and not isinstance(error, click.ClickException):
                traceback.print_exc()
            code = _report(error)
        sys.exit(code)


def _report(error: BaseException) -> int:
    """Print an error on one line, and return the exit code."""
    match error:
        case click.Abort() | KeyboardInterrupt():
            say("mllkm: interrupted", err=True)
            return INTERRUPTED
        case Terminated():
            say("mllkm: terminated", err=True)
            return TERMINATED
        case MLLKMError():
            _say(str(error))
            return error.exit_code
        case click.exceptions.NoArgsIsHelpError():
            error.show()
        case click.UsageError():
            hint = "" if error.ctx is None else f" (see: {error.ctx.command_path} --help)"
            _say(f"{error.format_message()}{hint}")
        case click.ClickException():
            _say(error.format_message())
        case _:
            _say(f"{type(error).__name__}: {error}; this was not expected: run again with --debug to see where")
            return 1
    return error.exit_code


def say(text: str, *, err: bool = False) -> None:
    """Print text of one or several lines, with control characters escaped, which names and labels may contain.

    >>> say("classes: cat\\x1b[2J, dog")
    classes: cat\\x1b[2J, dog
    """
    click.echo(printable(text, keep="\n\t"), err=err)


def _say(message: str) -> None:
    say(f"mllkm: error: {' '.join(message.split())}", err=True)


@contextmanager
def _termination() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)
