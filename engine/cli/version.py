"""``gaugeblock --version``."""

from __future__ import annotations

from engine.cli.console import CONSOLE


def show(as_json: bool) -> None:
    """Print the engine's version, contract revisions, kernel set, build flags and compiler."""
    from engine import native
    from engine.contracts import contracts

    build, revisions = native.build(), contracts()
    if as_json:
        CONSOLE.document(
            "version/1",
            version=build.version,
            contracts=revisions,
            kernel_set=build.kernel_set,
            compiler=build.compiler,
            flags=build.flags,
        )
        return
    CONSOLE.line(f"gaugeblock {build.version}")
    CONSOLE.line("contracts: " + ", ".join(f"{name} {value}" for name, value in revisions.items()))
    CONSOLE.line(f"kernels: {build.kernel_set}")
    CONSOLE.line(f"compiler: {build.compiler}")
    CONSOLE.line(f"flags: {build.flags}")
