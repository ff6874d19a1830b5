"""Model: open a GGUF once, ask the gate, bind the weights.

The order is fixed: the file is opened once, its header is parsed, the sidecar is resolved, and only
a model that the gate admits has its weights bound. What was hashed is what is mapped: one file
descriptor serves both, and ``fstat`` must agree before and after.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine import arguments, native
from engine.contracts import contracts
from engine.envelope import Policy, Standing, resolve
from engine.errors import FileError, ModelError, UsageError
from engine.hashing import ChangedError, Identity, file_sha256
from engine.machine import usable_cpus
from engine.native import ModelInfo, Span, Tensor
from engine.session import Session
from engine.template import Template, model_template
from engine.text import printable

__all__ = ["Header", "Metadata", "Model", "RuntimeConfig"]


@dataclass(frozen=True)
class RuntimeConfig:
    """What the gate compares with a sidecar: activations wide | int8 | f32, kv f16 | f32 | q8."""

    activations: str = "wide"
    kv: str = "f16"
    context_tokens: int = 2048

    def __post_init__(self) -> None:
        native.choice(native.ACTIVATIONS, self.activations, "activations")
        native.choice(native.KV_TYPES, self.kv, "kv")
        if arguments.integer(self.context_tokens, "context_tokens") < 1:
            raise UsageError(f"context_tokens must lie in 1 … 2^31-1, not {self.context_tokens}")


class Metadata(Mapping[str, Any]):
    """The key-value part of a GGUF as Python values, each converted when it is asked for."""

    def __init__(self, file: native.File) -> None:
        self._file = file
        self._index = {key: index for index, key in enumerate(file.keys())}

    def __getitem__(self, key: str) -> Any:
        return self._file.value(self._index[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


def open_regular(path: str | os.PathLike[str]) -> int:
    """Open a file for reading, following symbolic links; anything but a regular file is refused."""
    name = printable(os.fspath(path))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise FileError(f"{name} is a socket, not a regular file") from None
        raise FileError(f"{name} cannot be opened: {error.strerror}") from error
    except ValueError as error:  # a NUL in the path
        raise FileError(f"{name} cannot be opened: {error}") from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    kinds = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISCHR, "a device"))
    kind = next((text for test, text in kinds if test(mode)), "something else")
    raise FileError(f"{name} is {kind}, not a regular file: give the path of a .gguf file")


@contextlib.contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """Put the file's name before what the reader says about its bytes."""
    try:
        yield
    except ModelError as error:
        raise type(error)(f"{printable(os.fspath(path))}: {error}") from None


class Header:
    """A GGUF without its weights: metadata, tensor list, tokenizer. The gate is not asked."""

    def __init__(self, path: str | os.PathLike[str], fd: int, file: native.File) -> None:
        self.path = Path(path)
        self._fd: int | None = fd
        self._file = file
        self._identity = Identity.of(fd)  # open() puts the one from before the file was read

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mmap: bool = True) -> Self:
        """Open and validate the header of the file at ``path``."""
        fd = open_regular(path)
        try:
            before = Identity.of(fd)
            with _named(path):
                file = native.File.open(fd, mmap=mmap)
            header = cls(path, fd, file)
            header._identity = before
            return header
        except BaseException:
            os.close(fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; memory goes when nothing built on it is open any more. Thread-safe."""
        vocab = self.__dict__.get("vocab")
        if vocab is not None:
            vocab.close()
        self._file.close()
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", None) is not None:
            self.close()

    @cached_property
    def metadata(self) -> Metadata:
        """The key-value part, a lazy mapping."""
        return Metadata(self._file)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the file's order."""
        return tuple(self._file.tensors())

    @cached_property
    def vocab(self) -> native.Vocab:
        """The tokenizer."""
        with _named(self.path):
            return native.Vocab.open(self._file)

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._file.bytes

    @property
    def version(self) -> int:
        """GGUF version of the file, 2 or 3."""
        return self._file.version

    def _open_fd(self) -> int:
        if self._fd is None:
            raise UsageError("the model is closed")
        return self._fd

    def resolve(self, config: RuntimeConfig, policy: Policy = Policy()) -> Standing:
        """What the gate says about this file in a configuration. Raises RefusedError."""
        architecture = self.metadata.get("general.architecture")
        return resolve(
            self.path,
            self._open_fd(),
            config=config,
            contracts=contracts(),
            architecture=architecture if isinstance(architecture, str) else None,
            policy=policy,
        )

    @cached_property
    def _sha256(self) -> str:
        try:
            return file_sha256(self._open_fd())
        except (ChangedError, OSError) as error:
            raise FileError(f"{printable(self.path)}: {error}") from error

    def sha256(self) -> str:
        """SHA-256 of the opened file, read anew (never from the cache); lower-case hex."""
        return self._sha256

    def tensor_rows(self, name: str, first: int = 0, count: int | None = None) -> native.Floats:
        """Rows of a tensor, dequantised: float32 [count, dims[0]]."""
        return self._file.tensor_rows(name, first, count)

    def tokenize(
        self, text: str | bytes, *, special: bool = False, bos: bool = False, literal: Sequence[Span] = ()
    ) -> list[int]:
        """Token ids of a text (UTF-8) or of arbitrary bytes.

        ``special``: the text of control tokens becomes those tokens, save inside the byte spans
        ``literal``. ``bos``: add BOS and EOS where the metadata says so.
        """
        if isinstance(text, str):
            try:
                text = text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise UsageError(f"the text holds a lone surrogate at character {error.start}") from None
        spans = arguments.spans(literal, "literal")
        return self.vocab.tokenize(arguments.octets(text, "text"), special=special, bos=bos, literal=spans)

    def detokenize_bytes(self, ids: Iterable[int], *, special: bool = False) -> bytes:
        """The bytes that tokens stand for; control tokens have none unless ``special``."""
        tokens = arguments.listed(ids, "ids")
        return b"".join(self.vocab.token_bytes(token, special=special) for token in tokens)

    def detokenize(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Like ``detokenize_bytes``, as text; what is not UTF-8 becomes U+FFFD."""
        return self.detokenize_bytes(ids, special=special).decode("utf-8", "replace")

    def template(self, name: str | None = None) -> Template:
        """The model's own chat template, or the named one; see ``engine.template``."""
        whole = self._templates
        return whole if name is None else dataclasses.replace(whole, name=name)

    @cached_property
    def _templates(self) -> Template:
        return model_template(self.metadata, self.vocab)


class Model(Header):
    """A GGUF that the gate has admitted, with its weights bound. Shared freely between threads."""

    def __init__(self, path: str | os.PathLike[str], fd: int, file: native.File) -> None:
        super().__init__(path, fd, file)
        self.config = RuntimeConfig()
        self.standing: Standing
        self._weights: native.Weights

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        config: RuntimeConfig = RuntimeConfig(),
        policy: Policy = Policy(),
        mmap: bool = True,
    ) -> Self:
        """Open the model at ``path`` for one configuration.

        Raises FileError, FormatError or UnsupportedError for a file that cannot be used, and
        RefusedError, before weights are touched, for one that the gate refuses. ``mmap=False`` reads the
        file instead of mapping it: slower and larger, and safe from a file that is cut while in use.
        """
        model = super().open(path, mmap=mmap)
        try:
            model._admit(config, policy)
        except BaseException:
            model.close()
            raise
        return model

    def _admit(self, config: RuntimeConfig, policy: Policy) -> None:
        """Ask the gate, bind the weights, and see that the file is still the one that was judged."""
        before = self._identity
        self.config = config
        self.standing = self.resolve(config, policy)
        with _named(self.path):
            self._weights = native.Weights.load(self._file)
        if Identity.of(self._open_fd()) != before or self._file.bytes != before.size:
            raise FileError(f"{printable(self.path)} changed while it was opened")

    def close(self) -> None:
        """Refuse new calls; memory goes when the last session is closed too. Thread-safe."""
        weights = self.__dict__.get("_weights")
        if weights is not None:
            weights.close()
        super().close()

    @cached_property
    def info(self) -> ModelInfo:
        """Architecture and shape."""
        return self._weights.info

    def session(
        self,
        threads: int | None = None,
        batch: int = 512,
        sequences: int = 1,
        repack: bool = True,
    ) -> Session:
        """A new session in the model's configuration.

        ``threads`` None uses every CPU that this process may use; ``batch`` is the number of rows that
        are evaluated together; ``sequences`` have ids 0 … sequences-1. The first session makes a copy of
        the weights that is faster to read and serves all; with ``repack`` false a session reads the file's
        bytes instead, slower, with the same results.
        """
        options = native.ContextOptions(
            self.config.activations,
            self.config.kv,
            self.config.context_tokens,
            sequences,
            usable_cpus() if threads is None else threads,
            batch,
            repack,
        )
        return Session(self, self._weights, options)
