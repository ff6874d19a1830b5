"""The command ``gaugeblock``: one module a command, each imported when it is asked for.

Exit codes: 0 done, 1 failure, 2 usage, 5 refused by the gate, 130 interrupted. Results go to
standard output (``--json``: one document with a ``schema`` key), everything else to standard error.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from engine.cli.console import CONSOLE, escape

COMMANDS = {
    "run": "engine.cli.run:run",
    "chat": "engine.cli.chat:chat",
    "tokenize": "engine.cli.tokenize:tokenize",
    "logits": "engine.cli.logits:logits",
    "score": "engine.cli.score:score",
    "info": "engine.cli.info:info",
    "bench": "engine.cli.bench:bench",
    "serve": "engine.serve.command:serve",
    "fetch": "engine.cli.fetch:fetch",
    "doctor": "engine.cli.doctor:doctor",
}
SUMMARIES = {
    "run": "Continue a raw prompt.",
    "chat": "Talk to a model through its own chat template.",
    "tokenize": "Show the token ids of a text.",
    "logits": "Logits of a prompt: digest, array file, or the best tokens.",
    "score": "Log-probabilities and perplexity of a text.",
    "info": "What a model file holds, and how it stands with the gate.",
    "bench": "Speed and memory of a model here, beside the machine's limits.",
    "serve": "OpenAI-compatible HTTP server on the loopback interface.",
    "fetch": "Bring the model files of a manifest to this machine, by hash.",
    "doctor": "Check this installation and this machine.",
}
REMEDIES = {
    "force": "To load it all the same, add --force-uncertified",
    "require": "Measure it with `certify run`, or load it without --require",
    "trust": "Check where it came from, then add --trust-envelope with that hash",
}
"""What to do about a refusal, in the words of the command line; see ``RefusedError.way``."""


class Commands(click.Group):
    """Finds commands by name without importing the others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


@click.group(
    cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option("--version", "version", is_flag=True, help="Engine, contract revisions, kernels, build.")
@click.option("--json", "as_json", is_flag=True, help="With --version: one JSON document.")
@click.pass_context
def gaugeblock(ctx: click.Context, version: bool, as_json: bool) -> None:
    """Run GGUF language models with the same bits everywhere, and only as far as they were measured."""
    if version:
        from engine.cli.version import show

        show(as_json)
        ctx.exit(0)
    if ctx.invoked_subcommand is None:
        raise click.UsageError("a command is missing", ctx)
    if as_json:
        raise click.UsageError("--json stands after the command", ctx)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line, turn every exception into its exit code, and leave the process."""
    sys.exit(invoke(gaugeblock, args))


def invoke(command: click.Command, args: Sequence[str] | None = None) -> int:
    """Run a click command; returns the exit code. The only place that knows all of them."""
    from engine.errors import ContextOverflow, EngineError, RefusedError, UsageError

    CONSOLE.reset()
    try:
        result = command.main(None if args is None else list(args), "gaugeblock", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "gaugeblock"
        CONSOLE.error("usage", f"{escape(error.format_message())} (see {where} --help)")
        return error.exit_code if isinstance(error, click.UsageError) else 1
    except (KeyboardInterrupt, click.Abort):
        CONSOLE.error("interrupted", "interrupted")
        return 130
    except RefusedError as error:
        remedy = f". {REMEDIES[error.way]}" if error.way else ""
        CONSOLE.error("refused", escape(error.finding + remedy), standing=error.standing.document())
        return 5
    except EngineError as error:
        CONSOLE.error(type(error).__name__, escape(str(error)))
        return 2 if isinstance(error, UsageError) and not isinstance(error, ContextOverflow) else 1
    except BrokenPipeError:
        CONSOLE.abandon_output()
        return 1
    except ModuleNotFoundError as error:
        if error.name != "engine._engine":
            raise
        CONSOLE.error("not-built", "the C core is not built: run `make build`, or `pip install .`")
        return 1
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        CONSOLE.error("io", escape(f"{name}{error.strerror or error}"))
        return 1
