"""The child process that renders chat templates; started by path, imports nothing of ours.

Requests and replies are JSON documents, each after its length (u32 LE), on standard input and
output. Each request carries its limits; this process sets them on itself before it renders, and its
parent watches the clock and replaces it when it dies. A limit that was passed, and any error of the
template, is a reply ``{"error": …}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import struct
import sys
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, BinaryIO


class _Never(Exception):
    """Is not raised."""


class _TooLong(Exception):
    """The output passed its limit."""


def _environment() -> Any:
    """A Jinja environment that behaves as the one that transformers renders chat templates with."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    class Generation(Extension):
        """``{% generation %} … {% endgeneration %}`` marks assistant text; its body is rendered."""

        tags = {"generation"}  # noqa: RUF012  # Jinja's own protocol

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body, lineno=line)

    class PlainNamespace(Namespace):
        """A namespace that takes no names with a leading underscore."""

        def __init__(*args: Any, **values: Any) -> None:
            self, args = args[0], args[1:]
            Namespace.__init__(self)
            for name, value in dict(*args, **values).items():
                self[name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if str(name).startswith("_"):
                raise jinja2.exceptions.SecurityError(f"a namespace takes no name like '{name}'")
            Namespace.__setitem__(self, name, value)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["namespace"] = PlainNamespace
    return environment


def _raise_exception(message: object) -> None:
    """How a template refuses its messages."""
    from jinja2 import TemplateError

    raise TemplateError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _clock(now: str | None) -> Callable[[str], str]:
    """``strftime_now``: the time that the request fixes, else the machine's."""

    def strftime_now(form: str) -> str:
        moment = datetime.now() if now is None else datetime.fromisoformat(now)
        return moment.strftime(form)

    return strftime_now


def _limit(request: dict[str, Any]) -> None:
    """Set this request's limits on address space and on further CPU seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime) + request["cpu_s"] + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, resource.RLIM_INFINITY))
    # macOS knows RLIMIT_AS and refuses to set it: there the memory limit does not hold.
    with contextlib.suppress(ValueError if sys.platform == "darwin" else _Never):
        resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"], resource.RLIM_INFINITY))


def _render(compile_: Callable[[str], Any], request: dict[str, Any]) -> dict[str, Any]:
    """Render one request; the reply holds ``text`` or ``error``."""
    _limit(request)
    try:
        template = compile_(request["source"])
        context = {**request["variables"], "strftime_now": _clock(request["now"])}
        parts: list[str] = []
        size = 0
        for part in template.generate(context):
            parts.append(part)
            size += len(part)
            if size > request["output_bytes"]:
                raise _TooLong
        text = "".join(parts)
        if len(text.encode("utf-8")) > request["output_bytes"]:
            raise _TooLong
        return {"text": text}
    except _TooLong:
        return {"error": f"its output is longer than {request['output_bytes']} bytes"}
    except MemoryError:
        return {"error": f"it needs more than {request['memory_bytes']} bytes of memory", "spent": True}
    except RecursionError:
        return {"error": "it recurses too deeply"}
    except Exception as error:
        line = getattr(error, "lineno", None)
        where = f" (line {line})" if line else ""
        return {"error": f"{type(error).__name__}: {str(error)[:500]}{where}"}


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    body = stream.read(struct.unpack("<I", head)[0])
    value: dict[str, Any] = json.loads(body)
    return value


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until the parent closes its end."""
    environment = _environment()
    compile_ = lru_cache(maxsize=8)(environment.from_string)
    replies.write(struct.pack("<I", 2) + b"{}")
    replies.flush()
    while (request := _read(requests)) is not None:
        try:
            body = json.dumps(_render(compile_, request)).encode("ascii")
        except MemoryError:
            body = b'{"error": "it needs more memory than its limit", "spent": true}'
        replies.write(struct.pack("<I", len(body)) + body)
        replies.flush()


def main() -> None:
    """Keep the two pipes to itself, so that nothing else can write to them."""
    sys.path[:] = json.loads(sys.argv[1])
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    serve(requests, replies)


if __name__ == "__main__":
    main()
