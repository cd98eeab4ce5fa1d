"""The same with dlt, in a Python that has it (Airflow's own cannot).

    PYTHON_WITH_DLT benchmarks/stats_load/with_dlt.py

``BENCHMARK_DATABASE`` is the URL of the destination, ``BENCHMARK_SERVICE`` that of the service. Prints JSON: seconds,
CPU seconds, peak memory over what the imports alone take (MiB), and records.
"""

import gc
import json
import os
import resource
import time
import urllib.request
from pathlib import Path

import dlt
from dlt.destinations import postgres, sqlalchemy

ASKED = {"startDate": "2026-01-01", "endDate": "2026-03-31"}


def memory_mib(field):
    """Return a field of /proc/self/status in MiB.

    :param field: its name.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


@dlt.resource(name="mail_campaign_stats", primary_key="mailName", write_disposition="merge")
def stats():
    """One answer, handed over whole: dlt asks for lists where speed counts."""
    request = urllib.request.Request(
        os.environ["BENCHMARK_SERVICE"] + "/v5/campaign/mail/stats/get",
        json.dumps(ASKED).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        records = json.load(answer)["mailStatsList"]
    for record in records:
        sent = record["sentCount"]
        record["open_rate"] = record["openCount"] / sent * 100 if sent else 0.0
        record["click_rate"] = record["clickCount"] / sent * 100 if sent else 0.0
        record["bounce_rate"] = (record["hardBounce"] + record["softBounce"]) / sent * 100 if sent else 0.0
        record["unsubscribe_rate"] = record["unsubscribeCount"] / sent * 100 if sent else 0.0
    counted.append(len(records))
    yield records


counted = []
url = os.environ["BENCHMARK_DATABASE"]
destination = postgres(url) if url.startswith("postgresql") else sqlalchemy(url)
gc.collect()
idle = memory_mib("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
pipeline = dlt.pipeline(
    "benchmark",
    destination=destination,
    dataset_name="main" if "sqlite" in url else "public",
    pipelines_dir=os.environ["BENCHMARK_FOLDER"],
)
pipeline.run(stats()).raise_on_failed_jobs()
seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
measured = {"seconds": seconds, "cpu": cpu, "memory": memory_mib("VmHWM") - idle, "records": sum(counted)}
print(json.dumps(measured))
