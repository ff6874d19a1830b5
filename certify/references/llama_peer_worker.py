"""The process behind ``llama_peer.LlamaCppPython``: times llama.cpp through the user's ``llama-cpp-python``.

Run by the Python that has that package, with the path of this file; it sees the standard library, that
package, and ``llama_timing`` beside this file, nothing else of this project. One JSON object a line, in
and out; everything that llama.cpp prints goes to standard error.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from typing import Any


def beside(name: str) -> Any:
    """A module of this folder, which must not be on the path: it holds a ``llama_cpp`` of our own."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")  # noqa: PTH100, PTH118, PTH120
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}.py is missing")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(head: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request."""
    import llama_cpp

    if head["op"] == "open":
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        model = llama_cpp.llama_model_load_from_file(os.fsencode(head["model"]), params)
        if not model:
            return {"error": f"it cannot load {os.path.basename(head['model'])}"}  # noqa: PTH119
        state["timing"] = beside("llama_timing").Timing(
            llama_cpp,
            model,
            array=lambda ids: (llama_cpp.llama_token * len(ids))(*ids),
            buffer=lambda size: (ctypes.c_uint8 * size)(),
            absent=lambda pointer: not pointer,
        )
        vocab = llama_cpp.llama_model_get_vocab(model)
        return {
            "version": llama_cpp.__version__,
            "system_info": llama_cpp.llama_print_system_info().decode(errors="replace"),
            "vocab": int(llama_cpp.llama_vocab_n_tokens(vocab)),
        }
    options = {name: head[name] for name in ("together", "flash", "threads")}
    return {"seconds": state["timing"].seconds(head["before"], head["ids"], **options)}


def main() -> None:
    """Answer until standard input ends."""
    sys.path.pop(0)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    state: dict[str, Any] = {}
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line), state)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply) + "\n")
        out.flush()
    os._exit(0)  # llama.cpp's static destructors are not worth waiting for


if __name__ == "__main__":
    main()
