"""The connection form, as a person sees and uses it: filled, saved, tested, opened again."""

from __future__ import annotations

import json
import os

import pytest
from playwright.sync_api import Locator, Page, expect

from airflow_provider_mail.hooks.connection import FIELDS, conn_fields
from mail_emulator import Emulator
from tests.support import env
from tests.support.airflow import RunningAirflow
from tests.support.dags import AIRFLOW_VERSION

pytestmark = [
    pytest.mark.skipif(AIRFLOW_VERSION < (3, 1), reason="the form of 3.0 has our fields only with the FAB provider")
]

SECRETS = {"password": "typed-api-key", "access_token": "typed-access-token", "client_secret": "typed-client-secret"}


@pytest.fixture
def emulator(emulator: Emulator) -> Emulator:
    """The service; its API key is one to look for."""
    emulator.change_settings(api_key=SECRETS["password"])
    emulator.add_list("newsletter")
    return emulator


def add_connection(page: Page, conn_id: str, **fields: str) -> Locator:
    """The dialog for a new connection of our type, with standard fields filled in."""
    page.goto("/connections")
    page.get_by_role("button", name="Add Connection").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("[name=connection_id]").fill(conn_id)
    dialog.get_by_role("combobox").first.fill("Mail")
    page.get_by_role("option", name="Mail", exact=True).click()
    for name, value in fields.items():
        dialog.locator(f"[name={name}]").fill(value)
    return dialog


def open_section(dialog: Locator, name: str) -> None:
    """Unfold a section; the others fold up. Where the form knows no sections all our fields are "Extra Fields"."""
    button = dialog.get_by_role("button", name=name, exact=True)
    if name not in ("Standard Fields", "Extra Fields") and not button.count():
        button = dialog.get_by_role("button", name="Extra Fields", exact=True)
    if button.get_attribute("aria-expanded") != "true":
        button.click()
    expect(button).to_have_attribute("aria-expanded", "true")


def field(dialog: Locator, name: str) -> Locator:
    """The input of one of our fields, its section unfolded."""
    open_section(dialog, FIELDS[name].schema.get("section", "Extra Fields"))
    return dialog.locator(f"[name=element_{name}]")


def save(dialog: Locator) -> None:
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()


def press_test(page: Page, conn_id: str, outcome: str) -> str:
    """What the button in the list says; what it said before is gone with the page."""
    page.reload()
    page.get_by_role("row").filter(has_text=conn_id).get_by_label("Test Connection").click()
    toast = page.locator("[data-scope=toast][data-part=root]").filter(has_text=outcome)
    words = toast.locator("[data-part=description]").inner_text()
    page.mouse.move(5, 5)
    return words


def picture(dialog: Locator, name: str) -> None:
    """Keep a picture for the documentation (`SCREENSHOTS=1`)."""
    if os.environ.get("SCREENSHOTS"):
        dialog.page.mouse.move(5, 5)
        dialog.page.wait_for_timeout(500)  # until everything has unfolded
        dialog.screenshot(path=env.ROOT / "docs" / "images" / f"{name}.png", animations="disabled", caret="hide")


@pytest.mark.ci
def test_fill_save_test_and_open_again(page: Page, airflow: RunningAirflow, emulator: Emulator) -> None:
    standard = {"host": "https://api.example.com", "password": SECRETS["password"], "port": "443"}
    dialog = add_connection(page, "mail_default", **standard)
    expect(dialog.get_by_text("Base URL")).to_be_visible()
    expect(dialog.get_by_text("API key", exact=True)).to_be_visible()
    expect(dialog.get_by_text("Login", exact=True)).to_have_count(0)
    expect(dialog.locator("[name=host]")).to_have_attribute("placeholder", "https://api.example.com")
    picture(dialog, "connection-form")

    # The picture shows what somebody would enter, the test needs where the emulator is.
    dialog.locator("[name=host]").fill(emulator.base_url)
    dialog.locator("[name=port]").fill(emulator.base_url.rpartition(":")[2])
    field(dialog, "team_name").fill("Marketing")
    dialog.get_by_role("combobox").last.click()
    page.get_by_role("option", name="api_key", exact=True).click()
    dialog.locator("label", has=page.locator("[name=element_sandbox]")).click()
    picture(dialog, "connection-form-extra")
    for name in ("access_token", "client_secret"):
        field(dialog, name).fill(SECRETS[name])
        if AIRFLOW_VERSION >= (3, 3):  # before, Airflow hides only the standard password while it is typed
            expect(field(dialog, name)).to_have_attribute("type", "password")
    open_section(dialog, "Advanced")
    dialog.get_by_role("spinbutton").nth(-3).fill("4")  # before the two limits of a day
    picture(dialog, "connection-form-network")
    save(dialog)

    assert press_test(page, "mail_default", "Test Connection Successful") == (
        f"{emulator.base_url} accepts the password (API key); contact lists there: 1. "
        "The connection is in sandbox mode: no mail is sent and nothing is changed."
    )
    stored = airflow.api.request("GET", "/connections/mail_default").json()
    assert stored["password"] == "***"
    assert json.loads(stored["extra"]) == dict.fromkeys(conn_fields()) | {
        "auth_type": "api_key",
        "sandbox": True,
        "team_name": "Marketing",
        "access_token": "***",
        "client_secret": "***",
        "max_in_flight": 4,
    }

    received: list[str] = []
    page.on("response", lambda response: received.append(response.text()) if "/connections" in response.url else None)
    page.get_by_role("row").filter(has_text="mail_default").get_by_label("Edit Connection").click()
    for locator in (dialog.locator("[name=password]"), field(dialog, "access_token"), field(dialog, "client_secret")):
        expect(locator).to_have_value("***")
    expect(field(dialog, "team_name")).to_have_value("Marketing")
    received.append(page.content())
    assert not [secret for secret in SECRETS.values() for text in received if secret in text]

    # Saved again, the hidden secrets stay what they were.
    field(dialog, "team_name").fill("Sales")
    save(dialog)
    press_test(page, "mail_default", "Test Connection Successful")
    assert [(entry["operation"], entry["auth"]) for entry in emulator.journal.entries()] == [
        ("/v5/lists/get", "api_key")
    ] * 2
