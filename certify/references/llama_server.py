"""llama.cpp's own HTTP server, out of the ``xllamacpp`` wheel, as a peer that answers chat requests."""

from __future__ import annotations

import os
import sys

from certify.references import ReferenceCrashed, ReferenceUnavailable
from certify.references.llama_cpp import INSTALL, PACKAGE, installed_version, revision_of
from certify.servers import ServerError, ServerProcess
from engine.machine import usable_cpus


class LlamaServer:
    """One model behind llama.cpp's server on a free loopback port, in a process of its own."""

    name = "llama.cpp"
    provider = PACKAGE
    cpu_features: tuple[str, ...] = ()

    def __init__(self, model: str, context_tokens: int) -> None:
        version = installed_version()
        if version is None:
            raise ReferenceUnavailable(f"the package {PACKAGE} is not installed: {INSTALL}")
        self.package_version = version
        self.revision = revision_of(version)
        worker = "certify.references.llama_server_worker"
        values = [os.path.abspath(model), str(context_tokens), str(min(usable_cpus(), 8))]  # noqa: PTH100
        env = {"OMP_WAIT_POLICY": "passive", **os.environ}
        env["PYTHONPATH"] = os.pathsep.join(part for part in sys.path if part)
        try:
            self._process = ServerProcess([sys.executable, "-m", worker, *values], env)
        except ServerError as error:
            raise ReferenceCrashed(f"llama.cpp {self.revision}: {error}") from None
        self.url = self._process.url
        self.cpu_features = tuple(self._process.ready.get("cpu_features", ()))

    def check(self) -> None:
        """Raise ReferenceCrashed where it has died."""
        try:
            self._process.check()
        except ServerError as error:
            raise ReferenceCrashed(f"llama.cpp {self.revision}: {error}") from None

    def close(self) -> None:
        """End the process. Safe to call twice."""
        self._process.close()
