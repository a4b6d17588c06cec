"""Subcommands are imported when they are called, because importing is most of a command's start.

Only this table knows which module implements which subcommand.
"""

from importlib import import_module
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from penstock.cli.client_config_option import add_client_config, begin_command

# In the order of `--help`. Each module has `app`, a Typer of one command or of a group of them.
SUBCOMMANDS = {
    "up": "penstock.cli.up_command",
    "topic": "penstock.cli.topic_commands",
    "config": "penstock.cli.config_commands",
    "produce": "penstock.cli.produce_command",
    "consume": "penstock.cli.consume_command",
    "delayed": "penstock.cli.delayed_commands",
    "half": "penstock.cli.half_commands",
    "group": "penstock.cli.group_commands",
    "transaction": "penstock.cli.transaction_commands",
    "acl": "penstock.cli.acl_commands",
    "user": "penstock.cli.user_commands",
    "quota": "penstock.cli.quota_commands",
    "audit": "penstock.cli.audit_commands",
    "cluster": "penstock.cli.cluster_commands",
    "zookeeper": "penstock.cli.zookeeper_commands",
    "log": "penstock.cli.log_commands",
    "pipeline": "penstock.cli.pipeline_commands",
    "table": "penstock.cli.table_commands",
    "job": "penstock.cli.job_commands",
}


class LazyGroup(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        add_client_config(self)

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        begin_command()
        return super().make_context(*args, **kwargs)

    def list_commands(self, ctx: Any) -> list[str]:
        return [*SUBCOMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        module = SUBCOMMANDS.get(cmd_name)
        if module is not None and cmd_name not in self.commands:
            command = get_command(import_module(module).app)
            command.name = cmd_name
            add_client_config(command)
            self.commands[cmd_name] = command
        return super().get_command(ctx, cmd_name)
