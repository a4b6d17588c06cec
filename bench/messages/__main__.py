"""`python -m bench.messages`: prints JSON and writes bench/results/messages.json."""

from bench.measure import write_results
from bench.messages import fetching, importing, metadata, producing

if __name__ == "__main__":
    write_results(
        "messages",
        {
            "metadata_response": [metadata.measure(count) for count in (100, 1000, 10_000)],
            "produce_request": [producing.measure(count) for count in (1, 200)],
            "fetch_request": [fetching.measure_request(count) for count in (1, 200)],
            "fetch_response": [fetching.measure_response(count) for count in (1, 200)],
            "import": importing.measure(),
        },
    )
