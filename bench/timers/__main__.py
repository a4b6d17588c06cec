"""`python -m bench.timers`: prints JSON and writes bench/results/timers.json."""

from bench.measure import write_results
from bench.timers import churning, million

if __name__ == "__main__":
    write_results("timers", {"million": million.measure(), "churn": churning.measure()})
