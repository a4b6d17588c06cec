"""`python -m penstock.config.document` prints docs/configuration.md from the declarations.

A test keeps the committed file equal to this output.
"""

import sys
from collections.abc import Iterable

from penstock.config.registry import BROKER_THEMES, GROUP_SETTINGS, TOPIC_SETTINGS
from penstock.config.setting import DOUBLE_MAX, LONG_MAX, Setting, format_value

_INTRODUCTION = """\
# Configuration

A broker reads a `server.properties` in Kafka's syntax; names, units and defaults are Kafka's
(3.9 with ZooKeeper, and what 4.x added; where the two differ, the default is 4.x's, but segments
may be as small as 3.9 allows). This page is printed by `python -m penstock.config.document`.

- Every setting of Kafka is accepted, so that an existing file loads. *Effect* says what it does:
  **active**, or why nothing happens.
- Settings of security are the exception: an authorizer, a listener with SASL and what such a
  listener depends on, TLS between brokers and to ZooKeeper, ACLs of znodes, and policies for topics
  and settings refuse the start, because they are not in effect.
- An unknown name or an impossible value stops the broker. All problems are reported at once, with
  file, line, value and what is allowed.
- Clients may set dynamic broker settings with unknown names, as in Kafka: they are stored, and
  described without their value. They have no effect, which the broker's log says once.
- Settings of KRaft mode (`process.roles`, `controller.quorum.voters`, ...) and `config.providers`
  are refused by name. `node.id` is another name of `broker.id`.
- A setting can be given for one listener: `listener.name.<listener>.<setting>`, or
  `listener.name.<listener>.<mechanism>.<setting>`. Those of TLS and SASL are in effect.
- *Else* names the settings that answer when this one is not given, in order.
- *Update* says whether a setting can change while brokers run: `read-only`, `per-broker` or
  `cluster-wide`. What names a file, a class or a login is read-only, also where Kafka lets clients
  change it.
- Settings marked *Penstock* are not Kafka's.
"""


def document() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, _section("Topic settings", TOPIC_SETTINGS.values(), level=2)]
    parts.append(_section("Group settings", GROUP_SETTINGS.values(), level=2))
    parts.append("## Broker settings\n")
    parts += [_section(title, theme, level=3) for title, theme in BROKER_THEMES.items()]
    return "\n".join(parts)


def _section(title: str, settings: Iterable[Setting], *, level: int) -> str:
    entries = "\n".join(_entry(setting) for setting in settings)
    return f"{'#' * level} {title}\n\n{entries}"


def _entry(setting: Setting) -> str:
    own = " *(Penstock)*" if setting.own else ""
    facts = [
        f"*Kind*: {setting.kind}",
        f"*Default*: {_default(setting)}",
        *([f"*Allowed*: {setting.check.allowed}"] if setting.check.allowed else []),
        *([f"*Else*: {_fallbacks(setting)}"] if setting.fallbacks else []),
        f"*Update*: {setting.update}",
        f"*Effect*: {setting.effect or '**active**'}",
    ]
    return f"- `{setting.name}`{own}: {setting.doc}\n  {'. '.join(facts)}.\n"


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "not set"
    if setting.default in (LONG_MAX, DOUBLE_MAX):
        return f"`{format_value(setting.default)}` (no limit)"
    text = format_value(setting.default)
    return f"`{text}`" if text else "empty"


def _fallbacks(setting: Setting) -> str:
    return ", ".join(f"`{fallback.name}`" for fallback in setting.fallbacks)


if __name__ == "__main__":
    sys.stdout.write(document())
