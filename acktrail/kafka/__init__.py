"""The calls to Kafka: `admin` (public), `log_reader`, `state_lookup` for single state records."""

from __future__ import annotations

import importlib.util
import sys


def _enter_package(name: str) -> None:
    """Make the submodules of package `name` importable without running the package's own module, until code asks the
    package itself for a name (``kafka.KafkaProducer``). Does nothing when it was imported already or is not installed.

    kafka-python's package module imports producer, consumer and admin client: a tenth of the processor time of a
    command that asks one question. ``importlib.util.LazyLoader`` does not help: it runs the package's module as soon as
    a submodule is imported. Code of users in the same process still finds the whole package.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return
    loader, package = spec.loader, importlib.util.module_from_spec(spec)

    def fill(attribute: str) -> object:
        """Called once: for the first name that the package does not have yet (PEP 562)."""
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if importlib.util.find_spec(f"{name}.{attribute}") is not None:
            return importlib.import_module(f"{name}.{attribute}")
        del package.__getattr__
        loader.exec_module(package)
        return getattr(package, attribute)

    package.__getattr__ = fill  # type: ignore[method-assign]  # PEP 562
    sys.modules[name] = package


for _name in ("kafka", "kafka.protocol.admin", "kafka.protocol.consumer"):
    _enter_package(_name)
