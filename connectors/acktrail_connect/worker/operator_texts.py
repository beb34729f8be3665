"""What an operator wrote into files: keys for all connectors, and whole connectors. Their texts are trusted, those that
came by REST are not, and neither is the store, which REST wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from acktrail.secrets import Providers
from acktrail_connect.config_def import Texts
from acktrail_connect.worker.connector_config import ResolvedConfig, resolve_config, with_defaults
from acktrail_connect.worker.kept_secrets import led_to, not_kept, written_by_operator
from acktrail_connect.worker.storage_addresses import refused_addresses


@dataclass(frozen=True, slots=True)
class OperatorTexts:
    """`defaults` are keys that every connector has unless its own configuration says otherwise; `connectors`, by name,
    are those of files; `providers` say where references may lead."""

    defaults: Texts = field(default_factory=dict)
    connectors: Mapping[str, Texts] = field(default_factory=dict)
    providers: Providers = field(default_factory=Providers)

    def not_kept(self, own: Texts, sent: Texts, before: Texts | None) -> dict[str, tuple[str, ...]]:
        """What is wrong, by key, with the secrets of a configuration; see ``kept_secrets``."""
        return not_kept(sent, own, before, self.defaults, self._file_of(own))

    def resolved(self, own: Texts, lacks: Mapping[str, tuple[str, ...]], *, looks: bool = True) -> ResolvedConfig:
        """A connector's own texts and the defaults, with the values of references. `lacks`: secrets that the caller
        must send again. `looks`: see ``resolve_config``."""
        merged = with_defaults(own, self.defaults)
        trusted = (merged.keys() - own.keys()) | written_by_operator(own, self.defaults, self._file_of(own))
        written = [each for texts in (self.defaults, *self.connectors.values()) for each in led_to(texts)]
        providers = replace(self.providers, of_operator=written)
        in_file = self._file_of(own)
        asked = [name for name, text in own.items() if text not in (self.defaults.get(name), in_file.get(name))]
        found = resolve_config(merged, providers, of_operator=trusted, not_kept=lacks, looks=looks)
        return replace(found, wrong={**refused_addresses(merged, asked), **found.wrong})

    def _file_of(self, own: Texts) -> Texts:
        return self.connectors.get(str(own.get("name", "")), {})
