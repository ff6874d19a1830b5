"""llama.cpp builds that the user names on the command line, as opponents in speed.

``certify run --peer PATH``: a Python (or a virtual environment) that has ``llama-cpp-python``, or a
``llama-bench``. A manifest never names either. Neither is asked for tokens or logits, only for seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from certify.references import ReferenceCrashed, ReferenceRefused, ReferenceUnavailable

START = """
import sys
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=int(sys.argv[4]), n_threads=int(sys.argv[2]), verbose=False)
print(model.create_completion(sys.argv[3], max_tokens=1, temperature=0)["choices"][0]["text"], flush=True)
"""


def features(system_info: str) -> tuple[str, ...]:
    """Names of what ``llama_print_system_info`` lists as present, sorted, in lower case."""
    return tuple(sorted({name.lower() for name in re.findall(r"(\w+) = 1\b", system_info)}))


def open_peer(path: str, model: str) -> LlamaCppPython | LlamaBench:
    """What stands at ``path``: a virtual environment, a Python, or a llama-bench."""
    where = Path(path)
    if where.is_dir():
        where = where / "bin" / "python"
    if not (where.is_file() and os.access(where, os.X_OK)):
        raise ReferenceUnavailable(f"--peer {path}: there is no program to run")
    if where.name.startswith("llama-bench"):
        return LlamaBench(where, model)
    if where.name.startswith("python"):
        return LlamaCppPython(where, model)
    raise ReferenceUnavailable(f"--peer {path}: it is neither a Python nor a llama-bench by its name")


class LlamaCppPython:
    """``llama-cpp-python`` in a process of its own, one model loaded."""

    name = "llama.cpp"
    provider = "llama-cpp-python"

    def __init__(self, python: Path, model: str) -> None:
        self._python, self._model = python, model
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by close())
        worker = Path(__file__).with_name("llama_peer_worker.py")
        self._process = subprocess.Popen(
            [str(python), str(worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=peer_environment(),
        )
        try:
            hello = self._ask({"op": "open", "model": model})
        except BaseException:
            self.close()
            raise
        self.package_version = str(hello["version"])
        self.revision = f"llama-cpp-python-{self.package_version}"
        self.cpu_features = features(hello["system_info"])
        self.vocab = int(hello["vocab"])

    def seconds(
        self, before: Sequence[int], ids: Sequence[int], *, together: bool, flash: str, threads: int
    ) -> float:
        """Seconds to evaluate ``ids`` behind ``before``, at once or one by one."""
        request = {"before": list(before), "ids": list(ids), "together": together}
        return float(self._ask({"op": "seconds", "flash": flash, "threads": threads, **request})["seconds"])

    def start_command(self, prompt: str, threads: int, context_tokens: int) -> list[str]:
        """A Python process that uses the binding: load, one token, end."""
        values = (self._model, str(threads), prompt, str(context_tokens))
        return [str(self._python), "-c", START, *values]

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise ReferenceCrashed(f"the peer ended: {self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" not in answer:
            return answer
        if "ModuleNotFoundError" in answer["error"]:
            raise ReferenceUnavailable(f"{self._python} has no llama-cpp-python: {answer['error']}")
        raise ReferenceRefused(f"the peer refused: {answer['error']}")

    def _tail(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        return self._errors.read()[-800:].strip() or f"exit status {status}"

    def close(self) -> None:
        """End the process. Safe to call twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


class LlamaBench:
    """A ``llama-bench``: one process a measurement, with its own warm-up. It states no CPU features."""

    name = "llama.cpp"
    provider = "llama-bench"
    cpu_features: tuple[str, ...] = ()

    def __init__(self, program: Path, model: str) -> None:
        self._program, self._model = program, model
        found = self._run(1, 0, 0, "auto", 1)
        self.package_version = str(found["build_number"])
        self.revision = f"b{found['build_number']}-{found['build_commit']}"

    def seconds(
        self, before: Sequence[int], ids: Sequence[int], *, together: bool, flash: str, threads: int
    ) -> float:
        """Seconds for as many tokens; which ones they are llama-bench draws itself."""
        count = len(ids)
        depth = len(before) if len(before) > 1 else 0
        shape = (count, 0) if together else (0, count)
        return float(self._run(*shape, depth, flash, threads)["samples_ns"][0]) / 1e9

    def start_command(self, prompt: str, threads: int, context_tokens: int) -> list[str] | None:
        """It has no binding whose start could be timed."""
        return None

    def _run(self, prompt: int, decode: int, depth: int, flash: str, threads: int) -> dict[str, Any]:
        numbers = {"-p": prompt, "-n": decode, "-d": depth, "-t": threads, "-r": 1, "-ngl": 0}
        command = [str(self._program), "-m", self._model, "-o", "json", "-fa", flash]
        command += [part for name, value in numbers.items() for part in (name, str(value))]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=peer_environment(), check=False
            )
            rows = json.loads(done.stdout)
            found: dict[str, Any] = rows[0]
            if (found["n_prompt"], found["n_gen"], found["n_depth"]) != (prompt, decode, depth):
                raise ValueError("it measured something else")
            return found
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            raise ReferenceCrashed(f"llama-bench gave no figure: {type(error).__name__}: {error}") from None

    def close(self) -> None:
        """Nothing runs between measurements."""


def peer_environment() -> dict[str, str]:
    """The user's environment without what is set for our own Python; threads wait as it has them wait."""
    hidden = ("PYTHONPATH", "OMP_WAIT_POLICY", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in hidden}
