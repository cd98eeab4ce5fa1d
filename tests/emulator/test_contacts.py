"""Contacts: upsert, imports, get, list/get, delete."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_mail.emulator import Emulator
from tests.emulator.conftest import IMPORT_MAPPING, Api


def emails(emulator: Emulator, list_name: str | None = None) -> list[str | None]:
    return [contact["email"] for contact in emulator.contacts(list_name)]


class TestUpsert:
    def test_creates_and_updates_one_contact(self, api: Api) -> None:
        api.ok("contacts/upsert", email="ann@example.com")
        created = api.ok("contacts/get", email="ann@example.com")["contact"]
        assert created["name"] == "ann@example.com"  # defaults to the email
        api.emulator.clock.advance(60)
        api.ok("contacts/upsert", email="ann@example.com", name="Ann", phoneNumber="+49 1")
        updated = api.ok("contacts/get", email="ann@example.com")["contact"]
        assert (updated["name"], updated["phoneNumber"], updated["id"]) == ("Ann", "+49 1", created["id"])
        assert updated["createDate"] == created["createDate"]
        assert updated["modifyTime"] > created["modifyTime"]

    def test_shows_the_fields_of_the_document(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-01T12:00:00Z")
        api.emulator.add_contact("a@example.com", name="A", properties={"tier": "gold"})
        assert api.ok("contacts/get", email="a@example.com")["contact"] == {
            "id": "1",
            "name": "A",
            "email": "a@example.com",
            "phoneNumber": None,
            "properties": {"tier": "gold"},
            "createDate": "2026-03-01T12:00:00Z",
            "modifyTime": "2026-03-01T12:00:00Z",
            "createUserId": 1001,
        }

    def test_needs_email_or_phone(self, api: Api) -> None:
        assert "email or phoneNumber" in api.refused(400, "contacts/upsert", name="Ann")
        api.ok("contacts/upsert", phoneNumber="+49 1")
        api.ok("contacts/upsert", phoneNumber="+49 1", name="Ann")
        (contact,) = api.emulator.contacts()
        assert (contact["email"], contact["phoneNumber"], contact["name"]) == (None, "+49 1", "Ann")

    def test_the_address_identifies_whatever_its_case(self, api: Api) -> None:
        api.ok("contacts/upsert", email="Ann@Example.com", name="Ann")
        api.ok("contacts/upsert", email="ann@example.com")
        assert [(found["email"], found["name"]) for found in api.emulator.contacts()] == [("ann@example.com", "Ann")]

    def test_the_name_may_fall_back_to_the_email_on_update(self, api: Api) -> None:
        api.emulator.change_settings(name_reset_on_update=True)
        api.ok("contacts/upsert", email="ann@example.com", name="Ann")
        api.ok("contacts/upsert", email="ann@example.com")
        assert api.emulator.contact("ann@example.com")["name"] == "ann@example.com"

    def test_adds_to_an_existing_list_only(self, api: Api) -> None:
        api.refused(404, "contacts/upsert", email="ann@example.com", listName="L")
        assert api.emulator.contacts() == []
        api.ok("lists/add", listName="L")
        api.ok("contacts/upsert", email="ann@example.com", listName="L")
        assert emails(api.emulator, "L") == ["ann@example.com"]

    @pytest.mark.parametrize("email", ["ann", "ann@", "@example.com", "a b@example.com", "ann@localhost", "a@b@c.de"])
    def test_refuses_what_is_no_address(self, api: Api, email: str) -> None:
        assert "email" in api.refused(400, "contacts/upsert", email=email)
        api.emulator.change_settings(check_contact_emails=False)
        api.ok("contacts/upsert", email=email)

    def test_refuses_addresses_it_does_not_like(self, api: Api) -> None:
        api.emulator.change_settings(refused_addresses=["poison@example.com"])
        assert "refused" in api.refused(400, "contacts/upsert", email="poison@example.com")


class TestImports:
    def test_creates_the_list_and_fills_it(self, api: Api) -> None:
        assert api.import_contacts(
            [["a@example.com", "A"], ["b@example.com", None]], listName="L", listDescription="from a test"
        ) == {"code": 200, "message": ""}
        assert emails(api.emulator, "L") == ["a@example.com", "b@example.com"]
        (made,) = api.emulator.lists()
        assert (made["name"], made["description"], made["type"]) == ("L", "from a test", 1)

    @pytest.mark.parametrize(
        ("mode", "names"),
        [
            (1, {"old@example.com": "New", "new@example.com": "New"}),
            (2, {"old@example.com": "Old", "new@example.com": "New"}),
            (3, {"old@example.com": "New"}),
        ],
    )
    def test_update_modes(self, api: Api, mode: int, names: dict[str, str]) -> None:
        api.emulator.add_contact("old@example.com", name="Old")
        api.import_contacts([["old@example.com", "New"], ["new@example.com", "New"]], mode)
        assert {found["email"]: found["name"] for found in api.emulator.contacts()} == names

    @pytest.mark.parametrize(
        ("mode", "existing", "listed"),
        [
            (1, False, ["old@example.com", "new@example.com"]),
            (2, False, ["new@example.com"]),
            (2, True, ["old@example.com", "new@example.com"]),
            (3, False, ["old@example.com"]),
        ],
    )
    def test_only_imported_contacts_join_the_list(self, api: Api, mode: int, existing: bool, listed: list[str]) -> None:
        api.emulator.change_settings(import_lists_existing=existing)
        api.emulator.add_contact("old@example.com")
        api.import_contacts([["old@example.com", "O"], ["new@example.com", "N"]], mode, listName="L")
        assert emails(api.emulator, "L") == listed

    def test_values_follow_the_mapping(self, api: Api) -> None:
        api.ok(
            "contacts/imports",
            contactData=[["gold", "ignored", "a@example.com", "+49 1"], [7, None, "b@example.com", None]],
            contactDataMapping=[
                {"columnNum": 2, "propertyName": "email"},
                {"columnNum": 3, "propertyName": "phoneNumber"},
                {"columnNum": 0, "propertyName": "tier"},
            ],
            updateMode=1,
        )
        first, second = api.emulator.contacts()
        assert (first["email"], first["phoneNumber"], first["properties"]) == (
            "a@example.com",
            "+49 1",
            {"tier": "gold"},
        )
        assert (second["phoneNumber"], second["properties"]) == (None, {"tier": "7"})

    def test_properties_are_merged_and_nulls_keep_what_is_there(self, api: Api) -> None:
        api.emulator.add_contact("a@example.com", name="A", properties={"tier": "gold", "since": "2020"})
        mapping = [*IMPORT_MAPPING, {"columnNum": 2, "propertyName": "tier"}]
        for tier in ("silver", None):
            api.ok(
                "contacts/imports",
                contactData=[["a@example.com", None, tier]],
                contactDataMapping=mapping,
                updateMode=1,
            )
        contact = api.emulator.contact("a@example.com")
        assert (contact["name"], contact["properties"]) == ("A", {"tier": "silver", "since": "2020"})

    def test_of_duplicate_rows_the_last_wins(self, api: Api) -> None:
        api.import_contacts([["a@example.com", "first"], ["A@example.com", "last"]], listName="L")
        assert [found["name"] for found in api.emulator.contacts("L")] == ["last"]

    def test_phone_only_rows(self, api: Api) -> None:
        api.ok(
            "contacts/imports",
            contactData=[["+49 1"], ["+49 2"], ["+49 1"]],
            contactDataMapping=[{"columnNum": 0, "propertyName": "phoneNumber"}],
            updateMode=1,
            listName="L",
        )
        assert [found["phoneNumber"] for found in api.emulator.contacts("L")] == ["+49 1", "+49 2"]

    @pytest.mark.parametrize(
        ("mapping", "names"),
        [
            ([], "neither email nor phoneNumber"),
            ([{"columnNum": 0, "propertyName": "name"}], "neither email nor phoneNumber"),
            ([{"columnNum": -1, "propertyName": "email"}], "columnNum"),
            ([{"columnNum": "0", "propertyName": "email"}], "columnNum"),
            ([{"propertyName": "email"}], "columnNum"),
            ([{"columnNum": 0}], "propertyName"),
            ([{"columnNum": 0, "propertyName": "email"}] * 2, "twice"),
            ("email", "contactDataMapping"),
        ],
    )
    def test_a_wrong_mapping_is_refused(self, api: Api, mapping: Any, names: str) -> None:
        message = api.refused(
            400, "contacts/imports", contactData=[["a@example.com"]], contactDataMapping=mapping, updateMode=1
        )
        assert names in message

    @pytest.mark.parametrize("missing", ["contactData", "contactDataMapping", "updateMode"])
    def test_required_fields(self, api: Api, missing: str) -> None:
        body = {"contactData": [["a@example.com", "A"]], "contactDataMapping": IMPORT_MAPPING, "updateMode": 1}
        del body[missing]
        assert missing in api.refused(400, "contacts/imports", **body)

    @pytest.mark.parametrize("mode", [0, 4, "1", True, 1.0])
    def test_unknown_update_modes_are_refused(self, api: Api, mode: Any) -> None:
        assert api.import_contacts([["a@example.com", "A"]], mode)["code"] == 400

    @pytest.mark.parametrize(
        "row", [["a@example.com"], [None, "A"], ["", "A"], ["nobody", "A"], ["a@example.com", ["A"]], "text", None]
    )
    def test_a_row_that_cannot_be_valid_refuses_all_or_is_skipped(self, api: Api, row: Any) -> None:
        rows = [["good@example.com", "G"], row]
        answer = api.import_contacts(rows, listName="L")
        assert answer["code"] == 400
        assert "contactData[1]" in answer["message"]
        assert (api.emulator.contacts(), api.emulator.lists()) == ([], [])
        api.emulator.change_settings(import_bad_row="skip")
        assert api.import_contacts(rows, listName="L")["code"] == 200
        assert emails(api.emulator, "L") == ["good@example.com"]

    def test_settings_of_the_import(self, api: Api) -> None:
        api.emulator.change_settings(import_text_only=True, import_max_rows=2, contact_properties=["tier"])
        assert api.import_contacts([["a@example.com", 7]])["code"] == 400
        assert "2 rows" in api.import_contacts([["a@example.com", "A"]] * 3)["message"]
        mapping = [*IMPORT_MAPPING, {"columnNum": 1, "propertyName": "shoeSize"}]
        message = api.refused(
            400, "contacts/imports", contactData=[["a@example.com", "A"]], contactDataMapping=mapping, updateMode=1
        )
        assert "shoeSize" in message

    def test_poison_rows(self, api: Api) -> None:
        api.emulator.change_settings(refused_addresses=["poison@example.com"])
        answer = api.import_contacts([["a@example.com", "A"], ["poison@example.com", "P"]])
        assert (answer["code"], "contactData[1]" in answer["message"]) == (400, True)


class TestGet:
    def test_an_unknown_address(self, api: Api) -> None:
        api.refused(404, "contacts/get", email="nobody@example.com")
        api.emulator.change_settings(contact_not_found="null")
        assert api.ok("contacts/get", email="nobody@example.com")["contact"] is None
        api.emulator.change_settings(contact_not_found="absent")
        assert "contact" not in api.ok("contacts/get", email="nobody@example.com")

    def test_email_is_required(self, api: Api) -> None:
        api.refused(400, "contacts/get")
        api.refused(400, "contacts/get", email="")


class TestListGet:
    def test_pages_hold_every_contact_once(self, api: Api) -> None:
        api.emulator.add_list("L", count=45)
        seen = []
        for index in (1, 2, 3, 4):
            page = api.ok("contacts/list/get", listName="L", pageSize=20, pageIndex=index)
            assert page["totalRecords"] == 45
            assert page["requestId"]
            seen.append([contact["email"] for contact in page["contactList"]])
        assert list(map(len, seen)) == [20, 20, 5, 0]
        assert len({email for page in seen for email in page}) == 45

    def test_pages_may_be_read_in_any_order_and_while_members_come_and_go(self, api: Api) -> None:
        api.emulator.add_list("L", count=30)

        def page(index: int, size: int = 10) -> list[str]:
            found = api.ok("contacts/list/get", listName="L", pageSize=size, pageIndex=index)["contactList"]
            return [contact["email"].split("@")[0] for contact in found]

        assert page(3)[0] == "l-20"
        assert page(2)[0] == "l-10"
        assert page(3)[0] == "l-20"
        api.ok("contacts/delete", email="l-0@example.com")
        assert page(3)[0] == "l-21"
        assert page(5, 7)[0] == "l-29"

    def test_default_and_largest_page(self, api: Api) -> None:
        api.emulator.add_list("L", count=1001)
        assert len(api.ok("contacts/list/get", listName="L")["contactList"]) == 200
        assert len(api.ok("contacts/list/get", listName="L", pageSize=1000)["contactList"]) == 1000
        assert len(api.ok("contacts/list/get", listName="L", pageSize=1001)["contactList"]) == 1000
        api.emulator.change_settings(oversized_page="reject")
        assert "1000" in api.refused(400, "contacts/list/get", listName="L", pageSize=1001)

    def test_other_teams_need_permission(self, api: Api) -> None:
        api.emulator.add_list("L", ["other@example.com"], team="Sales")
        api.ok("lists/add", listName="L")
        assert api.ok("contacts/list/get", listName="L", teamName="Marketing")["contactList"] == []
        assert "Sales" in api.refused(403, "contacts/list/get", listName="L", teamName="Sales")
        api.emulator.change_settings(cross_team_permission=True)
        page = api.ok("contacts/list/get", listName="L", teamName="Sales")
        assert [contact["email"] for contact in page["contactList"]] == ["other@example.com"]

    def test_an_unknown_list(self, api: Api) -> None:
        api.refused(404, "contacts/list/get", listName="nowhere")
        api.emulator.change_settings(not_found_code=200)
        assert api.ok("contacts/list/get", listName="nowhere")["totalRecords"] == 0


class TestDelete:
    def test_is_permanent_also_in_lists(self, api: Api) -> None:
        api.emulator.add_list("L", ["a@example.com", "b@example.com"])
        api.ok("contacts/delete", email="A@example.com")
        assert emails(api.emulator) == emails(api.emulator, "L") == ["b@example.com"]
        api.refused(404, "contacts/delete", email="a@example.com")


class TestSandbox:
    """Everything is checked, nothing is changed."""

    def test_upsert(self, api: Api) -> None:
        api.ok("contacts/upsert", email="a@example.com", sandboxMode=True)
        api.refused(400, "contacts/upsert", email="nobody", sandboxMode=True)
        assert "sandboxMode" in api.refused(400, "contacts/upsert", email="a@example.com", sandboxMode="true")
        assert api.emulator.contacts() == []

    def test_imports(self, api: Api) -> None:
        answer = api.import_contacts([["a@example.com", "A"]], listName="L", sandboxMode=True)
        assert answer == {"code": 200, "message": ""}
        assert (api.emulator.contacts(), api.emulator.lists()) == ([], [])
        assert not api.emulator.journal.entries()[-1]["processed"]

    def test_delete(self, api: Api) -> None:
        api.emulator.add_list("L", ["a@example.com"])
        api.ok("contacts/delete", email="a@example.com", sandboxMode=True)
        api.refused(404, "contacts/delete", email="b@example.com", sandboxMode=True)
        assert emails(api.emulator, "L") == ["a@example.com"]
