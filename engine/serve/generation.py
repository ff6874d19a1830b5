"""What the server does with a model: prepare a prompt, generate, score, count.

``prepare_*`` runs in a thread of its own and raises ``ApiError``; ``run`` is a job's work and runs in
the scheduler's worker, which alone touches the session. Every number that /health shows about tokens
is written here, at the moment the work is done.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from engine import native
from engine.errors import TemplateError, UsageError
from engine.generate import Piece, Sampling
from engine.model import Model
from engine.serve.errors import ApiError, invalid
from engine.serve.events import Calls, Evidence, Finished, Likely, Outcome, Scored, Started, Text
from engine.serve.requests import ChatRequest, CompletionRequest, Options, Prompt
from engine.serve.scheduler import Job
from engine.serve.steering import Chat, Steering, text_steering
from engine.session import Session
from engine.template import Template
from engine.text import printable

# Prompt positions whose logits are held at once while a prompt is scored.
SCORE_ROWS = 32
_REASONS = {
    "stop": "stop",
    "stop-string": "stop",
    "length": "length",
    "context": "length",
    "deadline": "length",
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prompt as ids; ``text`` is what ``echo`` returns."""

    ids: list[int]
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that is ready to run."""

    options: Options
    prompts: list[Prepared]
    echo: bool = False
    steering: Steering | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        if self.options.choices is not None and self.steering is None:
            message = "needs a constraint, or tools: else there are no alternatives to tell apart"
            raise invalid("choice_logprobs", message)

    @property
    def sampling(self) -> Sampling:
        """The engine's form of the sampling options."""
        options = self.options
        return Sampling(
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            repeat_penalty=options.repeat_penalty,
            frequency_penalty=options.frequency_penalty,
            presence_penalty=options.presence_penalty,
            seed=options.seed,
        )


class Held:
    """Keeps each token's score back until the text in which the token begins is certain.

    ``mixed``: not all tokens are of the content. Those since the last text that was none then go with the
    next content.
    """

    def __init__(self, vocab: native.Vocab, *, mixed: bool = False) -> None:
        self._vocab = vocab
        self._mixed = mixed
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoded = 0
        self._shown = 0
        self._waiting: list[tuple[int, Scored]] = []

    def add(self, piece: Piece) -> tuple[Scored, ...]:
        """Scores that go out with this piece. Tokens of a stop string, and end tokens, have none."""
        if piece.token is not None and piece.logprob is not None and piece.finish != "stop":
            scored = score(self._vocab, piece.token, piece.logprob, piece.top)
            self._waiting.append((self._decoded, scored))
            self._decoded += len(self._decoder.decode(self._vocab.token_bytes(piece.token)))
        self._shown += len(piece.text)
        if self._mixed:
            return self._of_content(piece)
        everything = piece.finish is not None and piece.finish != "stop-string"
        ready = len(self._waiting) if everything else 0
        while ready < len(self._waiting) and self._waiting[ready][0] < self._shown:
            ready += 1
        released, self._waiting = self._waiting[:ready], self._waiting[ready:]
        return tuple(scored for _, scored in released)

    def _of_content(self, piece: Piece) -> tuple[Scored, ...]:
        if not piece.text and not piece.reasoning and not piece.calls:
            return ()
        released = [scored for _, scored in self._waiting] if piece.text else []
        self._waiting = []
        return tuple(released)


def token_name(vocab: native.Vocab, token: int) -> bytes:
    """A token's bytes; a control token's spelling."""
    return vocab.token_bytes(token, special=True)


def score(
    vocab: native.Vocab, token: int, logprob: float | None, top: tuple[tuple[int, float], ...]
) -> Scored:
    """A token and its alternatives by their bytes."""
    likely = tuple(Likely(token_name(vocab, other), value) for other, value in top)
    return Scored(Likely(token_name(vocab, token), logprob), likely)


def _deadline(options: Options) -> float | None:
    """When the answer must end, counted from the request."""
    return None if options.timeout is None else time.monotonic() + options.timeout


def _unread(piece: Piece) -> bool:
    """Whether the deadline had passed before the prompt was read."""
    return piece.token is None and piece.finish == "deadline"


def _finished(piece: Piece, index: int, prompt: int, completion: int, steered: bool) -> Finished:
    """The end of a choice; counts in tokens."""
    reason = _REASONS[piece.finish or "length"]
    if piece.finish == "stop" and piece.endings:
        reason = "tool_calls"
    why = "stop" if piece.reason == "stop-string" else piece.reason
    outcome = Outcome(piece.truncated, why, piece.filled, piece.endings) if steered else None
    return Finished(index, reason, prompt, completion, outcome)


class Backend:
    """One model and one session."""

    def __init__(self, model: Model, session: Session) -> None:
        self.model = model
        self.session = session
        self.tokens_prompt = 0
        self.tokens_generated = 0
        self.phase = "idle"  # or "prompt", "decode"

    def prepare_chat(self, request: ChatRequest) -> Plan:
        """Render and tokenise the messages; their content cannot become control tokens."""
        chat = Chat(self.model.vocab, self._template, request)
        try:
            rendered = chat.render()
        except (TemplateError, UsageError) as error:
            message = f"messages cannot be rendered: {printable(error, 500)}"
            raise ApiError(400, message, code="template_error", param="messages") from None
        ids = self.model.tokenize(rendered.text, special=True, literal=rendered.literal)
        prompt = self._checked(Prepared(ids, rendered.text), "messages", request.options)
        room = self.session.context_tokens - len(ids)
        steering = chat.steering(rendered.text, room)
        return Plan(request.options, [prompt], steering=steering, deadline=_deadline(request.options))

    def prepare_completion(self, request: CompletionRequest) -> Plan:
        """Tokenise the prompts as ``gaugeblock run`` does: a text gets BOS where the metadata says so, and
        the text of control tokens becomes those tokens. Ids stay as they are."""
        single = len(request.prompts) == 1
        prompts = [
            self._prompt(prompt, "prompt" if single else f"prompt[{index}]", request.options)
            for index, prompt in enumerate(request.prompts)
        ]
        steering = text_steering(self.model.vocab, request.options)
        return Plan(request.options, prompts, request.echo, steering, _deadline(request.options))

    def _prompt(self, prompt: Prompt, where: str, options: Options) -> Prepared:
        if isinstance(prompt, str):
            return self._checked(
                Prepared(self.model.tokenize(prompt, special=True, bos=True), prompt), where, options
            )
        size = self.model.info.vocab
        for index, token in enumerate(prompt):
            if not 0 <= token < size:
                raise invalid(f"{where}[{index}]", f"token ids lie in 0 … {size - 1}", "out_of_range")
        text = self.model.detokenize(prompt, special=True)
        return self._checked(Prepared(prompt, text), where, options)

    def _checked(self, prompt: Prepared, where: str, options: Options) -> Prepared:
        """Refuse a prompt that is empty, or leaves no room for one token where one is asked for."""
        count, room = len(prompt.ids), self.session.context_tokens
        if count == 0:
            raise invalid(where, "gives no token; there is nothing to continue")
        if count > room or (count == room and options.max_tokens != 0):
            message = (
                f"{where}: {count} tokens do not fit into a context of {room} and leave room for an answer"
            )
            raise ApiError(400, message, code="context_length_exceeded", param=where)
        return prompt

    @cached_property
    def _template(self) -> Template:
        return self.model.template()

    def interrupt(self, on: bool) -> None:
        """From any thread: stop the step that runs, or take that back."""
        self.session.cancel(on)

    def run(self, plan: Plan, job: Job) -> None:
        """Generate every choice of a plan; raises CancelledError soon after the job is cancelled."""
        job.emit(Started())
        try:
            for index, prompt in enumerate(plan.prompts):
                self.session.truncate(0)
                self._choice(plan, prompt, index, job)
        finally:
            self.phase = "idle"
            self.session.truncate(0)

    def _choice(self, plan: Plan, prompt: Prepared, index: int, job: Job) -> None:
        self.phase = "prompt"
        ids = prompt.ids
        if plan.echo:
            ids = self._echo(plan, prompt, index, job)
        held = Held(self.model.vocab, mixed=plan.steering is not None and plan.steering.mixed)
        count = 0
        for piece in self._pieces(plan, ids):
            self._count(piece, prompt, first=self.phase == "prompt")
            if job.cancelled:
                return
            count += piece.token is not None
            self._emit(piece, held.add(piece), index, job)
            if piece.finish is not None:
                counted = 0 if _unread(piece) else len(prompt.ids)
                job.emit(_finished(piece, index, counted, count, plan.steering is not None))

    @staticmethod
    def _emit(piece: Piece, scored: tuple[Scored, ...], index: int, job: Job) -> None:
        if piece.reasoning:
            job.emit(Calls(index, piece.reasoning, ()))
        if piece.text or scored:
            job.emit(Text(index, piece.text, scored))
        if piece.calls:
            job.emit(Calls(index, "", piece.calls))
        if piece.choices:
            job.emit(Evidence(index, piece.choices))

    def _pieces(self, plan: Plan, ids: list[int]) -> Iterator[Piece]:
        options = plan.options
        if not ids:  # scored already, and nothing is to be generated
            return iter([Piece(None, "", "length")])
        return self.session.generate(
            ids,
            sampling=plan.sampling,
            max_tokens=options.max_tokens,
            stop=options.stop if plan.steering is None else (),
            logprobs=options.logprobs,
            constraint=None if plan.steering is None else plan.steering.make(),
            deadline=plan.deadline,
            choices=options.choices,
        )

    def _count(self, piece: Piece, prompt: Prepared, *, first: bool) -> None:
        if first:
            self.phase = "decode"
            self.tokens_prompt += 0 if _unread(piece) else len(prompt.ids)
        self.tokens_generated += piece.token is not None

    def _echo(self, plan: Plan, prompt: Prepared, index: int, job: Job) -> list[int]:
        """Emit the prompt, scored where that is asked for; returns the ids that are left to evaluate."""
        if plan.options.logprobs is None:
            job.emit(Text(index, prompt.text))
            return prompt.ids
        scored = tuple(self._score(prompt.ids, plan.options.logprobs, job))
        spelled = self.model.detokenize(prompt.ids, special=True)
        lead = len(spelled) - len(prompt.text) if spelled.endswith(prompt.text) else 0
        job.emit(Text(index, prompt.text, scored, lead))
        if plan.options.max_tokens == 0:
            return []
        if plan.sampling.penalised:  # penalties look at the whole prompt: evaluate it again
            self.session.truncate(0)
            return prompt.ids
        return prompt.ids[-1:]

    def _score(self, ids: list[int], best: int, job: Job) -> Iterator[Scored]:
        """Every prompt token under the tokens before it; evaluates all but the last."""
        vocab = self.model.vocab
        yield score(vocab, ids[0], None, ())
        for start in range(0, len(ids) - 1, SCORE_ROWS):
            if job.cancelled:
                return
            chunk = ids[start : min(start + SCORE_ROWS, len(ids) - 1)]
            for row, token in zip(self.session.eval(chunk, want="all"), ids[start + 1 :], strict=False):
                values = native.log_softmax(row)
                top = native.top(values, best) if best else []
                likely = tuple((other, float(values[other])) for other in top)
                yield score(vocab, token, float(values[token]), likely)
