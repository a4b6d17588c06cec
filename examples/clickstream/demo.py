"""The data pipeline, start to end: run it with `make demo`.

Starts a broker, sends sample clicks of a web shop to a topic, and runs the pipeline of
`pipeline.yaml` on Spark: clicks per section and minute go to another topic, and every click with
the title of its page to a Parquet table. Plain Python computes both again: the exit code is 0 only
if the results agree. KEEP=1 keeps the broker running until Ctrl-C. CLICKS=n sends n clicks.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import penstock

PIPELINE = Path(__file__).parent / "pipeline.yaml"
CLICKS = int(os.environ.get("CLICKS", "200000"))
BROKEN = 3  # records with a value that is not JSON
PARTITIONS = 4
USERS = 5_000
SECTIONS = ("shoes", "hats", "coats", "bags", "sale")
PAGES = [f"/{section}/{number}" for section in SECTIONS for number in range(40)]
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SPREAD = timedelta(minutes=30)


class Click(NamedTuple):
    user: str
    page: str
    at: datetime
    dwell_ms: int


Minute = tuple[str, datetime]  # a section of the shop, and a minute
Totals = tuple[int, int]  # clicks, total dwell time


def main() -> None:
    started = time.monotonic()
    with penstock.Broker() as broker, tempfile.TemporaryDirectory() as folder:
        step(f"A broker is serving at {broker.bootstrap_servers} after {elapsed(started)}.")
        clicks = send_clicks(broker)
        run_pipeline(broker, Path(folder))
        check_minutes(broker, clicks)
        check_table(Path(folder), clicks)
        check_broken(broker)
        print(f"\nAll steps held, in {elapsed(started)}.", flush=True)
        keep_serving(broker, Path(folder))


# Sample events.


def send_clicks(broker: penstock.Broker) -> list[Click]:
    broker.create_topic("clicks", partitions=PARTITIONS)
    clicks = list(make_clicks(random.Random(7)))
    started = time.monotonic()
    with penstock.Producer(broker.bootstrap_servers, compression="lz4") as producer:
        sent = [producer.send("clicks", as_json(click), key=click.user) for click in clicks]
        sent += [producer.send("clicks", f"no click {n}") for n in range(BROKEN)]
        for future in sent:
            future.result(timeout=60)
    took = time.monotonic() - started
    step(
        f"{len(clicks):,} clicks were sent to the topic `clicks`, keyed by user, and acknowledged:"
    )
    more(f"{len(clicks) / took:,.0f} per second. One of them: {as_json(clicks[0])}")
    more(f"{BROKEN} values among them are not clicks.")
    return clicks


def make_clicks(rng: random.Random) -> Iterator[Click]:
    for number in range(CLICKS):
        late = timedelta(seconds=rng.expovariate(1 / 5))
        yield Click(
            f"user-{rng.randrange(USERS)}",
            rng.choice(PAGES),
            START + SPREAD * number / CLICKS - late,
            rng.randrange(100, 60_000),
        )


def as_json(click: Click) -> str:
    return json.dumps(click._asdict() | {"at": iso(click.at)})


def section_of(page: str) -> str:
    return page.split("/")[1]


def title_of(page: str) -> str:
    return f"{section_of(page).capitalize()}, number {page.split('/')[2]}"


# The pipeline.


def run_pipeline(broker: penstock.Broker, folder: Path) -> None:
    pages = [{"page": page, "section": section_of(page), "title": title_of(page)} for page in PAGES]
    (folder / "pages.json").write_text("".join(json.dumps(page) + "\n" for page in pages))
    step("A pipeline on Spark reads them: clicks per section and minute go to the topic")
    more("`clicks-per-minute`, exactly once; every click with its page's title goes to a Parquet")
    more("table.")
    more(f"$ penstock pipeline run {os.path.relpath(PIPELINE)} --once")
    started = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", PIPELINE, "--once"],
        cwd=folder,
        env={**os.environ, "PENSTOCK_BOOTSTRAP": broker.bootstrap_servers},
        check=False,
    )
    check(result.returncode == 0, "the pipeline exits with 0")
    took = time.monotonic() - started
    step(f"It processed {CLICKS / took:,.0f} clicks per second, including Spark's start.")


# The checks.


def check_minutes(broker: penstock.Broker, clicks: list[Click]) -> None:
    expected = count_minutes(clicks)
    actual: dict[Minute, Totals] = {}
    for value in values_of(broker, "clicks-per-minute"):
        row = json.loads(value)
        minute = datetime.fromisoformat(row["minute"]).astimezone(UTC)
        actual[row["section"], minute] = row["clicks"], row["dwell_ms"]
        if actual == expected:
            break
    check(actual == expected, "the topic has the counts that plain Python computes")
    (section, minute), (count, _) = max(actual.items(), key=lambda item: item[1])
    step(f"The topic `clicks-per-minute` has {len(actual)} pairs of section and minute, and plain")
    more(f"Python computes the same. The busiest: {section} at {minute:%H:%M}, {count:,} clicks.")


def count_minutes(clicks: list[Click]) -> dict[Minute, Totals]:
    counts: Counter[Minute] = Counter()
    dwell: Counter[Minute] = Counter()
    for click in clicks:
        minute = section_of(click.page), click.at.replace(second=0, microsecond=0)
        counts[minute] += 1
        dwell[minute] += click.dwell_ms
    return {minute: (counts[minute], dwell[minute]) for minute in counts}


def check_table(folder: Path, clicks: list[Click]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(str(folder / "tables" / "clicks"))
    # Spark writes timestamps in UTC to Parquet, without a time zone.
    at = table["at"].cast(pa.timestamp("us", "UTC"))
    rows = table.set_column(table.schema.get_field_index("at"), "at", at).to_pylist()
    actual = Counter((row["user"], row["page"], row["title"], iso(row["at"])) for row in rows)
    expected = Counter((c.user, c.page, title_of(c.page), iso(c.at)) for c in clicks)
    check(actual == expected, "the table has every click once, with its page's title")
    positions = {(row["_partition"], row["_offset"]) for row in rows}
    check(len(positions) == len(clicks), "no record was read twice")
    step(f"The table has all {len(rows):,} clicks, each once, each with the title of its page.")


def check_broken(broker: penstock.Broker) -> None:
    expected = {b"no click %d" % number for number in range(BROKEN)}
    dead: set[bytes] = set()
    for value in values_of(broker, "clicks-dead"):
        dead.add(value)
        if dead >= expected:
            break
    check(dead == expected, "values that are not clicks are dead letters")
    step(f"The {len(dead)} values that are not clicks are in the topic `clicks-dead`.")


def values_of(broker: penstock.Broker, topic: str) -> Iterator[bytes]:
    """Values from the beginning of the topic, until the caller stops or no more arrive."""
    with penstock.Consumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        from_beginning=True,
        isolation="read_committed",
        timeout_s=15,
    ) as consumer:
        for message in consumer:
            assert message.value is not None
            yield message.value


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


# Output.


def keep_serving(broker: penstock.Broker, folder: Path) -> None:
    if os.environ.get("KEEP"):
        print(f"Serving at {broker.bootstrap_servers} until Ctrl-C. Try, in another terminal:")
        print(f"  export PENSTOCK_BOOTSTRAP={broker.bootstrap_servers}")
        print("  .venv/bin/penstock consume clicks-per-minute --from-beginning --max-messages 5")
        print("  .venv/bin/penstock group describe clickstream")
        print(f"The table is in {folder}/tables/clicks.", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


def step(text: str) -> None:
    print(f"- {text}", flush=True)


def more(text: str) -> None:
    print(f"  {text}", flush=True)


def elapsed(since: float) -> str:
    return f"{time.monotonic() - since:.1f} s"


def check(holds: bool, claim: str) -> None:
    if not holds:
        raise SystemExit(f"failed: {claim}")


if __name__ == "__main__":
    main()
