"""The command ``certify``: a group, one module of ``certify.commands`` per family of subcommands.

Each such module lists its commands in ``COMMANDS``.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys

import click

from certify import commands, console
from certify.reasons import CertifyExit
from engine import streams
from engine.verdict import RULE


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version and the contract revisions; the C core is loaded only for this."""
    if not wanted or context.resilient_parsing:
        return
    from engine import native
    from engine.contracts import contracts

    revisions = ", ".join(f"{name} {value}" for name, value in contracts().items())
    console.say(f"certify {native.build().version} ({revisions}, verdict rule {RULE})")
    context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--log-format", type=click.Choice(console.LOG_FORMATS), default="text", help="Format of logs on stderr."
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Versions."
)
def group(log_format: str) -> None:
    """Measure GGUF models, and write receipts that anyone can replay."""


def register() -> click.Group:
    """The group with the commands of every module."""
    for item in pkgutil.iter_modules(commands.__path__):
        if not item.name.startswith("_"):
            module = importlib.import_module(f"{commands.__name__}.{item.name}")
            for command in module.COMMANDS:
                group.add_command(command)
    return group


def main() -> None:
    """Entry point. A broken pipe ends quietly; an interrupt with 130."""
    streams.prepare()
    try:
        register().main(prog_name="certify", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(int(CertifyExit.INTERRUPTED))
    except click.ClickException as error:
        _say_usage(error)
        sys.exit(int(CertifyExit.USAGE))
    except KeyboardInterrupt:
        sys.exit(int(CertifyExit.INTERRUPTED))
    except OSError as error:
        console.log(f"the output cannot be written: {error.strerror or error}", level="error")
        _abandon_output()
        sys.exit(int(CertifyExit.HARNESS))


def _say_usage(error: click.ClickException) -> None:
    """One line for a command line that is wrong, in the log format that it asks for."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    missing = isinstance(error, click.exceptions.NoArgsIsHelpError)
    message = "a command is missing" if missing else error.format_message()
    where = context.command_path if context is not None else "certify"
    with context.scope(cleanup=False) if context is not None else contextlib.nullcontext():
        console.log(f"{message} (see {where} --help)", level="error")


def _abandon_output() -> None:
    """What is still buffered must not fail again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    main()
