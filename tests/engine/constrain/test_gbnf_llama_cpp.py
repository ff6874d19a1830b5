"""What llama.cpp writes under a GBNF grammar is admitted here, whole texts and cut ones alike.

A tiny model of random weights writes at a high temperature, so texts wander all over the grammar.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import constrain
from tests.engine.constrain.grammars import matcher
from tests.engine.constrain.test_gbnf import JSON

GRAMMARS = [
    JSON,
    r"""
    root ::= (expr "=" term "\n"){1,3}
    expr ::= term ([-+*/] term)*
    term ::= ident | num | "(" ws expr ws ")"
    ident ::= [a-z] [a-z0-9_]*
    num ::= [0-9]{1,4} ("." [0-9]+)?
    ws ::= [ \t]*
    """,
    r"""
    root ::= (word | [^a-z\n] | "\u00e9" "\U0001F600"? | .{2})* "."
    word ::= [a-mα-ω]+ ("-" word)? | "x"{3,} # words
    """,
]
# Requests are [grammar, seed] on standard input; the answer is the texts and why each ended.
SERVER = """
import json, sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.cpuparams.n_threads, params.warmup = 256, 1, False
server, answers = xllamacpp.Server(params), []
for grammar, seed in json.load(sys.stdin):
    body = {"prompt": "a", "max_tokens": 60, "temperature": 2.0, "seed": seed, "grammar": grammar}
    choice = server.handle_completions(body)["choices"][0]
    answers.append([choice["text"], choice["finish_reason"]])
with open(sys.argv[2], "w") as out:
    json.dump(answers, out)
"""


@pytest.mark.reference
def test_texts_that_llama_cpp_writes_are_admitted(tiny_model: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    requests = [(grammar, seed) for grammar in GRAMMARS for seed in range(8)]
    subprocess.run(
        [sys.executable, "-c", SERVER, str(tiny_model("llama-f32")), str(tmp_path / "answers")],
        input=json.dumps(requests), text=True, check=True, capture_output=True, timeout=200,
    )  # fmt: skip
    answers = json.loads((tmp_path / "answers").read_text())
    assert len(answers) == len(requests)
    assert len({text for text, _ in answers}) > 12
    for (grammar, _), (text, finish) in zip(requests, answers, strict=True):
        whole = text.rstrip("\ufffd")  # a cut inside a character
        at = matcher(constrain.compile("gbnf", grammar), whole.encode())
        at.commit_bytes(at.close().data)
        assert at.accepting
        assert finish == "length" or matcher(constrain.compile("gbnf", grammar), text.encode()).accepting
