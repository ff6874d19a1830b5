"""``gaugeblock chat``: a conversation through the model's own template."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.cli.console import CONSOLE, escape
from engine.cli.options import (
    Choosing,
    Constraining,
    Loading,
    constraint_options,
    json_option,
    loading_options,
    prompt_options,
    read_prompt,
    sampling_options,
)
from engine.errors import ContextOverflow, UsageError

if TYPE_CHECKING:
    from engine.cli.generation import Result
    from engine.constrain import Constraint
    from engine.model import Model
    from engine.session import Session
    from engine.template import Template

HELP = "/exit ends, /clear forgets the conversation, Ctrl-C stops an answer"


@click.command()
@loading_options
@prompt_options
@sampling_options
@constraint_options
@click.option("--system", help="Text of the system message.")
@click.option("--template", "template_name", help="One of the model's named templates.")
@json_option
def chat(
    prompt: str | None,
    file: Path | None,
    system: str | None,
    template_name: str | None,
    as_json: bool,
    **rest: Any,
) -> None:
    """Talk to a model. With -p or -f: one question, one answer. /exit ends a conversation."""
    loading, choosing = Loading.take(rest), Choosing.take(rest)
    constraint = Constraining.take(rest)
    question = None if prompt is None and file is None else read_prompt(prompt, file)
    if as_json and question is None:
        raise UsageError("--json needs the question with -p or -f")
    from engine.cli.generation import generation_document

    with loading.open() as model, loading.session(model) as session:
        template = model.template(template_name)
        talk = Conversation(model, session, template, choosing, system, constraint)
        if question is None:
            talk.interactive()
            return
        result = talk.answer(question, show=not as_json)
        if as_json:
            document = generation_document(model, result)
            CONSOLE.document("chat/1", message={"role": "assistant", "content": result.text}, **document)
        else:
            CONSOLE.log("finish", result.summary(), finish=result.finish)


@dataclass
class Conversation:
    """The messages so far, and the tokens that the session holds of them."""

    model: Model
    session: Session
    template: Template
    choosing: Choosing
    system: str | None
    constraint: Constraint | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)

    def answer(self, question: str, *, show: bool) -> Result:
        """Ask one question; the exchange is remembered once its answer is complete."""
        from engine.cli.generation import collect

        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        asked = [*self.messages, {"role": "user", "content": question}]
        rendered = self.template.render([*system, *asked])
        ids = self.model.tokenize(rendered.text, special=True, literal=rendered.literal)
        kept = self._reuse(ids)
        result = collect(
            self.session,
            ids,
            self.choosing,
            show=CONSOLE.text if show else None,
            evaluated=kept,
            constraint=self.constraint,
        )
        self.held = [*ids, *result.tokens][: self.session.length()]
        if show:
            CONSOLE.text("\n")
        self.messages = [*asked, {"role": "assistant", "content": result.text}]
        return result

    def _reuse(self, ids: list[int]) -> int:
        """Keep the evaluated tokens that the new prompt begins with; the last one is always new."""
        limit = min(len(self.held), len(ids) - 1)
        same = next((i for i in range(limit) if self.held[i] != ids[i]), limit)
        self.session.truncate(same)
        self.held = self.held[:same]
        return same

    def interactive(self) -> None:
        """Read questions until /exit or the end of input. Ctrl-C stops an answer; at the prompt it ends."""
        CONSOLE.log("help", HELP)
        while (question := self._read()) is not None:
            if question == "/exit":
                return
            if question == "/clear":
                self.messages = []
                continue
            if not question:
                continue
            try:
                result = self.answer(question, show=True)
                if result.finish != "stop":
                    CONSOLE.log("finish", result.summary(), finish=result.finish)
            except KeyboardInterrupt:
                if not sys.stdin.isatty():
                    raise
                CONSOLE.text("\n")
                CONSOLE.log("interrupted", "stopped; Ctrl-C once more ends")
            except ContextOverflow as error:
                CONSOLE.log("context", f"{escape(str(error))}: /clear, or a larger -c", level="warning")

    @staticmethod
    def _read() -> str | None:
        if sys.stdin.isatty():
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        return line.strip() if line else None
