"""The part of `AsyncAdmin` for the configs of topics, brokers, groups and brokers' loggers."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.admin_arguments import read_names, read_resources
from penstock.client.admin_operations import AdminOperations
from penstock.client.admin_values import AlterConfigOp, ConfigEntry, ConfigResource, ConfigValue
from penstock.config.text_values import as_text
from penstock.model.admin import ConfigOperation


class ConfigOperations(AdminOperations):
    async def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Every setting of each resource with its value and source, or only those in `names`.

        `synonyms`: also where else it may be set, and the values there; `documentation`: what it
        does, and whether it takes effect."""
        described = await self._connected().admin.describe_configs(
            read_resources(resources),
            names=None if names is None else read_names("setting", names),
            with_synonyms=synonyms,
            with_documentation=documentation,
            timeout_ms=self._ms(timeout_s),
        )
        return {
            resource: {entry.name: entry for entry in sorted(entries, key=_by_name)}
            for resource, entries in described.items()
        }

    async def alter_configs(
        self,
        resource: ConfigResource,
        values: Mapping[str, ConfigValue | None] | None = None,
        *,
        append: Mapping[str, ConfigValue] | None = None,
        subtract: Mapping[str, ConfigValue] | None = None,
        delete: Iterable[str] = (),
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Change some settings of one resource, all or none; others stay. None as a value, or
        `delete`, returns to the default; `append` and `subtract` are for lists."""
        changes = [
            AlterConfigOp(name, None, ConfigOperation.DELETE)
            if value is None
            else AlterConfigOp(name, as_text(value))
            for name, value in (values or {}).items()
        ]
        changes += _operations(ConfigOperation.APPEND, append)
        changes += _operations(ConfigOperation.SUBTRACT, subtract)
        changes += [AlterConfigOp(name, None, ConfigOperation.DELETE) for name in delete]
        await self.incremental_alter_configs(
            {resource: changes}, validate_only=validate_only, timeout_s=timeout_s
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfigOp]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Change settings of several resources; each changes wholly or not at all."""
        read_resources(changes)
        for resource, operations in changes.items():
            if not operations:
                raise ValueError(f"nothing to change of {resource}: give a setting")
            read_names("setting", [operation.name for operation in operations])
        await self._connected().admin.incremental_alter_configs(
            changes, validate_only=validate_only, timeout_ms=self._ms(timeout_s)
        )


def _operations(
    operation: ConfigOperation, given: Mapping[str, ConfigValue] | None
) -> list[AlterConfigOp]:
    return [AlterConfigOp(name, as_text(value), operation) for name, value in (given or {}).items()]


def _by_name(entry: ConfigEntry) -> str:
    return entry.name
