"""Load a GGUF with Hugging Face transformers, as a float oracle (needs torch; run by hand).

transformers reads the file and dequantises the weights itself. What its GGUF reader leaves out
is set from the file's metadata and tensors: Qwen 3's head size, Gemma 3's query scale and linear
rope scaling, the llama-3 rope divisors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig

from tests.oracle.float64_forward import File


def load(path: Path, dtype: torch.dtype) -> Any:
    """The model in ``dtype`` with eager attention, dequantised, ready to be called."""
    file = File(path)
    shape = file.shape()
    config = AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name)
    config.head_dim = shape.head_dim
    if shape.arch == "gemma3":
        config.query_pre_attn_scalar = shape.head_dim
        if shape.freq_divisor != 1.0:
            config.rope_parameters["full_attention"] |= {"rope_type": "linear", "factor": shape.freq_divisor}
    if shape.arch == "llama":
        config.attention_bias = file.has("blk.0.attn_q.bias")
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent),
        gguf_file=path.name,
        config=config,
        dtype=dtype,
        attn_implementation="eager",
        quantization_config=GgufConfig(dequantize=True),
    )
    if file.has("rope_freqs.weight"):
        rope = model.model.rotary_emb
        rope.inv_freq = rope.inv_freq / torch.tensor(
            file.tensor("rope_freqs.weight"), dtype=rope.inv_freq.dtype
        )
    return model.eval()


def logits(model: Any, ids: list[int]) -> npt.NDArray[np.float64]:
    """Logits [n, vocab] of one sequence."""
    with torch.no_grad():
        out: npt.NDArray[np.float64] = model(torch.tensor([ids])).logits[0].double().numpy()
    return out
