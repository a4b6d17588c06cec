"""White and black lists of topics, read as Kafka 0.8.2 reads them. Pure.

Invariant: the text that is registered is the text that is matched, so that every member of a
group, ours or not, expands it to the same topics.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.cluster import INTERNAL_TOPICS
from penstock.model.name_pattern import InvalidPattern, compile_pattern

_QUOTES = "\"'"


class TopicFilter(NamedTuple):
    regex: str
    is_black_list: bool = False
    with_internal: bool = False

    def allows(self, topic: str) -> bool:
        """The pattern matches whole names. Internal topics are left out unless asked for."""
        if topic in INTERNAL_TOPICS and not self.with_internal:
            return False
        return compile_pattern(self.regex).matches(topic) != self.is_black_list


def parse_list(text: str, option: str) -> str:
    """The regex of a list as users write it: a comma means `|`, spaces and quotes around it are
    dropped. ValueError names the option."""
    regex = text.strip().replace(",", "|").replace(" ", "").strip(_QUOTES)
    if not regex:
        raise ValueError(f"{option} is empty; write a pattern of topic names, for example a.*")
    return check_regex(regex, option)


def check_regex(regex: str, option: str) -> str:
    try:
        compile_pattern(regex)
    except InvalidPattern as error:
        raise ValueError(f"{option} {regex!r} is not a pattern of topic names: {error}") from error
    return regex


def white_list_of(topics: Sequence[str], regex: str) -> str:
    """One white list for named topics and a pattern, because a member registers only one."""
    return "|".join([*(re.escape(topic).replace(r"\-", "-") for topic in topics), regex])
