"""The command, its files, and the emulator as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

import airflow_provider_mail
from airflow_provider_mail.emulator import Emulator, EmulatorProcess, EmulatorSettings
from tests.support.processes import wait_until

pytestmark = pytest.mark.not_unit

COMMAND = [sys.executable, "-m", "airflow_provider_mail.emulator"]
HOME = Path(airflow_provider_mail.__file__).parents[1]


def post(emulator: Emulator | EmulatorProcess, operation: str, **body: object) -> dict[str, object]:
    headers = {"ApiKey": emulator.api_key}
    return httpx.post(
        f"{emulator.base_url}/v5/{operation}", json=body, headers=headers, trust_env=False, timeout=60
    ).json()


def start(tmp_path: Path, *arguments: str) -> tuple[subprocess.Popen[str], dict[str, str]]:
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", "--ready-file", str(ready), *arguments],
        cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    while not ready.exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)
    return process, json.loads(ready.read_text())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_and_stops_cleanly(tmp_path: Path, how: signal.Signals) -> None:
    process, ready = start(tmp_path, "--api-key", "secret-key", "--setting", "success_message=null")
    try:
        answer = httpx.post(
            f"{ready['base_url']}/v5/webhook/get",
            json={},
            headers={"ApiKey": "secret-key"},
            trust_env=False,
            timeout=60,
        )
        assert (answer.json()["code"], answer.json()["message"]) == (200, None)
        assert ready["pid"] == process.pid
        assert ready["api_key"] == "secret-key"
    finally:
        process.send_signal(how)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert ready["base_url"] in output
    assert "secret-key" in output
    assert "Traceback" not in output


def test_open_connections_do_not_hold_the_end_up(tmp_path: Path) -> None:
    process, ready = start(tmp_path)
    with httpx.Client(base_url=ready["base_url"], trust_env=False, timeout=60) as client:
        client.post("/v5/webhook/get", json={})
        client.post("/_emulator/faults/add", json={"kind": "delay", "seconds": 60})
        with pytest.raises(httpx.ReadTimeout):
            client.post("/v5/webhook/get", json={}, timeout=0.1)
        process.terminate()
        process.communicate(timeout=30)  # and not after the minute
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--setting", "no_such=1"], "no_such"),
        (["--setting", "sending_seconds=soon"], "sending_seconds"),
        (["--setting", "sending_seconds"], "name=value"),
        (["--file", "/proc/nowhere/state.db"], "unable to open"),
        (["--port", "99999"], "'99999' is not a port: expected 0 to 65535"),
        (["--port", "http"], "'http' is not a port"),
        (["--forward-smtp", "localhost"], "'localhost' is not HOST:PORT"),
    ],
)
def test_wrong_options_are_told(arguments: list[str], says: str) -> None:
    done = subprocess.run([*COMMAND, "--port", "0", *arguments], cwd=HOME, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_are_listed_with_their_meaning() -> None:
    done = subprocess.run([*COMMAND, "--list-settings"], cwd=HOME, capture_output=True, text=True, check=True)
    assert "sending_seconds=5.0\n    Virtual seconds" in done.stdout
    assert all(f"{name}=" in done.stdout for name in EmulatorSettings.__slots__)


def test_who_reads_the_output_may_leave_early() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "--list-settings"], cwd=HOME, stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_demo_data(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    for _ in range(2):  # the second time it is there already
        process, ready = start(tmp_path, "--demo-data", "--file", str(file))
        headers = {"ApiKey": ready["api_key"]}
        with httpx.Client(base_url=ready["base_url"], headers=headers, trust_env=False, timeout=60) as client:
            assert client.post("/v5/campaign/mail/get", json={}).json()["totalRecords"] == 14
            assert client.post("/v5/lists/get", json={}).json()["totalRecords"] == 2
        process.terminate()
        process.communicate(timeout=60)
        (tmp_path / "ready.json").unlink()


def test_it_needs_neither_airflow_nor_the_client(tmp_path: Path) -> None:
    script = (
        "import sys; import airflow_provider_mail.emulator.__main__, airflow_provider_mail.emulator.client; "
        "print([name for name in sys.modules if name.partition('.')[0] in ('airflow', 'pydantic', 'httpx', 'pendulum') "
        "or name.startswith('airflow_provider_mail.') and not name.startswith('airflow_provider_mail.emulator')])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=HOME, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class TestProcess:
    def test_is_controlled_like_one_in_this_process(self) -> None:
        with EmulatorProcess(EmulatorSettings(sending_looks=1, refused_addresses=("x@example.com",))) as emulator:
            assert emulator.read_settings()["sending_looks"] == 1
            emulator.add_sender("news@example.com")
            emulator.add_list("L", count=3)
            emulator.faults.add("code_before", "campaign/mail/sends")
            body = {"mailName": "m", "senderMail": "news@example.com", "sendListNames": ["L"]}
            codes = [post(emulator, "campaign/mail/sends", **body)["code"] for _ in range(2)]
            assert codes == [500, 200]
            assert emulator.campaign_recipients("m") == [f"l-{number}@example.com" for number in range(3)]
            assert emulator.journal.count("campaign/mail/sends") == 2
            pid = emulator.pid
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_a_kill_loses_nothing_that_was_answered(self, tmp_path: Path) -> None:
        with EmulatorProcess(file=tmp_path / "state.db") as emulator:
            emulator.add_sender("news@example.com")
            emulator.clock.freeze("2026-03-01T12:00:00Z")
            emulator.add_list("L", count=100)
            post(
                emulator, "campaign/mail/sends", mailName="m", senderMail="news@example.com", sendListNames=["L"],
                sendDate="2026-03-01T13:00:00Z",
            )  # fmt: skip
            address = emulator.base_url
            assert emulator.kill() == -signal.SIGKILL
            with pytest.raises(OSError, match="refused"):
                emulator.lists()
            emulator.start()
            assert emulator.base_url == address
            assert emulator.contact_count("L") == 100
            assert emulator.campaigns("m")[0]["state"] == "scheduled"
            assert emulator.clock.now() == datetime(2026, 3, 1, 12, tzinfo=UTC)
            emulator.clock.advance(hours=2)
            assert emulator.campaigns("m")[0]["state"] == "done"
            assert emulator.journal.count() == 0  # of this process, not of the state

    def test_a_failing_start_is_told(self) -> None:
        with pytest.raises(RuntimeError, match="unable to open"), EmulatorProcess(file=Path("/proc/nowhere/x.db")):
            pass

    def test_without_a_file_a_restart_forgets(self) -> None:
        with EmulatorProcess() as emulator:
            emulator.add_list("L")
            assert emulator.stop() == 0
            emulator.start()
            assert emulator.lists() == []


def test_a_file_serves_in_process_too(tmp_path: Path) -> None:
    for expected in (0, 1):
        with Emulator(file=tmp_path / "state.db") as emulator:
            assert len(emulator.lists()) == expected
            emulator.add_list(f"L{expected}")


def test_it_speaks_tls(tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "key.pem", "-out",
         tmp_path / "cert.pem", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    certificate.write_text((tmp_path / "key.pem").read_text() + (tmp_path / "cert.pem").read_text())
    with Emulator(EmulatorSettings(tls_certificate=str(certificate))) as emulator:
        assert emulator.base_url.startswith("https://")
        context = __import__("ssl").create_default_context(cafile=str(tmp_path / "cert.pem"))
        with httpx.Client(base_url=emulator.base_url, verify=context, trust_env=False, timeout=60) as client:
            assert client.post("/v5/webhook/get", json={}).status_code == 401
            emulator.faults.add("reset_after")
            with pytest.raises(httpx.TransportError):
                client.post("/v5/webhook/get", json={})
        with (
            httpx.Client(base_url=emulator.base_url, trust_env=False, timeout=60) as client,
            pytest.raises(httpx.ConnectError),
        ):
            client.post("/v5/webhook/get", json={})


def test_it_ends_with_the_process_that_started_it() -> None:
    script = (
        "import os\n"
        "from airflow_provider_mail.emulator import EmulatorProcess\n"
        "emulator = EmulatorProcess()\n"
        "emulator.start()\n"
        "print(emulator.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=HOME, capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    wait_until(lambda: not _runs(pid), what=f"the end of the emulator {pid} with its parent", interval=0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
