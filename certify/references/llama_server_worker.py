"""The process behind ``llama_server.LlamaServer``: ``python -m … MODEL CONTEXT_TOKENS THREADS``.

Everything but the model, the context and the threads is as llama.cpp's server has it by default, save
that no prompt is taken from a cache: the same request then gives the same answer. It ends with its
parent, whose end of standard input closes.
"""

from __future__ import annotations

import json
import os
import re
import sys

import xllamacpp


def main() -> None:
    """Serve until standard input ends."""
    model, context, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = context
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.use_jinja = True
    params.cache_prompt = False
    server = xllamacpp.Server(params)
    info = str(xllamacpp.get_system_info())
    features = sorted({name.lower() for name in re.findall(r"(\w+) = 1\b", info)})
    print(json.dumps({"url": server.listening_address, "cpu_features": features}), flush=True)
    sys.stdin.read()
    sys.stdout.flush()
    os._exit(0)  # its destructors are not worth waiting for


if __name__ == "__main__":
    main()
