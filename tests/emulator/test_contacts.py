"""Contacts, their lists, and email templates, with the paging that they share with campaigns."""

from __future__ import annotations

from typing import Any

import pytest

from mail_emulator import Emulator
from tests.emulator.conftest import IMPORT_MAPPING, Api


def emails(emulator: Emulator, list_name: str | None = None) -> list[str | None]:
    return [contact["email"] for contact in emulator.contacts(list_name)]


def test_an_upsert_creates_and_then_updates_one_contact(api: Api) -> None:
    api.ok("contacts/upsert", email="Ann@Example.com")
    created = api.ok("contacts/get", email="ann@example.com")["contact"]
    assert created["name"].lower() == "ann@example.com"  # defaults to the email
    api.emulator.clock.advance(60)
    for body in ({"name": "Ann", "phoneNumber": "+49 1"}, {}):
        api.ok("contacts/upsert", email="ann@example.com", **body)
    updated = api.ok("contacts/get", email="ann@example.com")["contact"]
    assert (updated["name"], updated["phoneNumber"], updated["id"]) == ("Ann", "+49 1", created["id"])
    assert updated["createDate"] == created["createDate"] < updated["modifyTime"]
    api.emulator.change_settings(name_reset_on_update=True)
    api.ok("contacts/upsert", email="ann@example.com")
    assert [(each["email"], each["name"]) for each in api.emulator.contacts()] == [("ann@example.com",) * 2]


def test_a_contact_has_the_fields_of_the_specification(api: Api) -> None:
    api.emulator.clock.freeze("2026-03-01T12:00:00Z")
    api.emulator.add_contact("a@example.com", name="A", properties={"tier": "gold"})
    assert api.ok("contacts/get", email="a@example.com")["contact"] == {
        "id": "1", "name": "A", "email": "a@example.com", "phoneNumber": None, "properties": {"tier": "gold"},
        "createDate": "2026-03-01T12:00:00Z", "modifyTime": "2026-03-01T12:00:00Z", "createUserId": 1001,
    }  # fmt: skip


def test_what_an_upsert_needs(api: Api) -> None:
    """An email or a phone number, and a list that exists."""
    api.rejected(400, "contacts/upsert", "email or phoneNumber", name="Ann")
    api.rejected(404, "contacts/upsert", email="ann@example.com", listName="L")
    assert api.emulator.contacts() == []
    api.ok("lists/add", listName="L")
    api.ok("contacts/upsert", email="ann@example.com", listName="L")
    assert emails(api.emulator, "L") == ["ann@example.com"]
    for body in ({}, {"name": "Bob"}):
        api.ok("contacts/upsert", phoneNumber="+49 1", **body)
    _, contact = api.emulator.contacts()
    assert (contact["email"], contact["phoneNumber"], contact["name"]) == (None, "+49 1", "Bob")


def test_what_is_not_an_address_is_rejected(api: Api) -> None:
    wrong = ["ann", "ann@", "@example.com", "a b@example.com", "ann@localhost", "a@b@c.de"]
    for email in wrong:
        api.rejected(400, "contacts/upsert", "email", email=email)
    api.emulator.change_settings(check_contact_emails=False, refused_addresses=["poison@example.com"])
    for email in wrong:
        api.ok("contacts/upsert", email=email)
    api.rejected(400, "contacts/upsert", "refused", email="poison@example.com")
    response = api.import_contacts([["a@example.com", "A"], ["poison@example.com", "P"]])
    assert (response["code"], "contactData[1]" in response["message"]) == (400, True)


def test_an_import_creates_its_list_and_of_duplicates_the_last_wins(api: Api) -> None:
    rows = [["a@example.com", "first"], ["b@example.com", None], ["A@example.com", "last"]]
    assert api.import_contacts(rows, listName="L", listDescription="from a test") == {"code": 200, "message": ""}
    assert [each["name"] for each in api.emulator.contacts("L")] == ["last", "b@example.com"]
    (created,) = api.emulator.lists()
    assert (created["name"], created["description"], created["type"]) == ("L", "from a test", 1)
    phones = [{"columnNum": 0, "propertyName": "phoneNumber"}]
    api.import_contacts([["+49 1"], ["+49 2"], ["+49 1"]], contactDataMapping=phones, listName="P")
    assert [each["phoneNumber"] for each in api.emulator.contacts("P")] == ["+49 1", "+49 2"]


@pytest.mark.parametrize(
    ("mode", "lists_existing", "names", "listed"),
    [
        (1, False, {"old": "New", "new": "New"}, ["old", "new"]),
        (2, False, {"old": "Old", "new": "New"}, ["new"]),
        (2, True, {"old": "Old", "new": "New"}, ["old", "new"]),
        (3, False, {"old": "New"}, ["old"]),
    ],
)
def test_update_modes(api: Api, mode: int, lists_existing: bool, names: dict[str, str], listed: list[str]) -> None:
    api.emulator.change_settings(import_lists_existing=lists_existing)
    api.emulator.add_contact("old@example.com", name="Old")
    api.import_contacts([["old@example.com", "New"], ["new@example.com", "New"]], mode, listName="L")
    assert {each["email"].partition("@")[0]: each["name"] for each in api.emulator.contacts()} == names
    assert emails(api.emulator, "L") == [f"{name}@example.com" for name in listed]


def test_values_follow_the_mapping_and_null_keeps_the_old_ones(api: Api) -> None:
    api.emulator.add_contact("a@example.com", name="A", properties={"tier": "iron", "since": "2020"})
    columns = {2: "email", 3: "phoneNumber", 0: "tier"}
    mapping = [{"columnNum": number, "propertyName": name} for number, name in columns.items()]
    rows = [["gold", "ignored", "a@example.com", "+49 1"], [7, None, "b@example.com", None]]
    api.import_contacts(rows, contactDataMapping=mapping)
    api.import_contacts([[None, None, "a@example.com", None]], contactDataMapping=mapping)
    names = ("email", "name", "phoneNumber", "properties")
    assert [[each[name] for name in names] for each in api.emulator.contacts()] == [
        ["a@example.com", "A", "+49 1", {"tier": "gold", "since": "2020"}],
        ["b@example.com", "b@example.com", None, {"tier": "7"}],
    ]


def test_wrong_imports(api: Api) -> None:
    good = {"contactData": [["a@example.com", "A"]], "contactDataMapping": IMPORT_MAPPING, "updateMode": 1}
    for words, mapping in (
        ("neither email nor phoneNumber", []),
        ("neither email nor phoneNumber", [{"columnNum": 0, "propertyName": "name"}]),
        ("columnNum", [{"columnNum": -1, "propertyName": "email"}]),
        ("columnNum", [{"columnNum": "0", "propertyName": "email"}]),
        ("columnNum", [{"propertyName": "email"}]),
        ("propertyName", [{"columnNum": 0}]),
        ("twice", [{"columnNum": 0, "propertyName": "email"}] * 2),
        ("contactDataMapping", "email"),
        ("contactDataMapping", None),
    ):
        api.rejected(400, "contacts/imports", words, **good | {"contactDataMapping": mapping})
    api.rejected(400, "contacts/imports", "contactData", **good | {"contactData": None})
    for mode in (None, 0, 4, "1", True, 1.0):
        api.rejected(400, "contacts/imports", "updateMode", **good | {"updateMode": mode})


def test_a_bad_row_rejects_the_import_or_is_skipped(api: Api) -> None:
    for row in (["a@example.com"], [None, "A"], ["", "A"], ["nobody", "A"], ["a@example.com", ["A"]], "text", None):
        api.emulator.change_settings(import_bad_row="reject")
        rows = [["good@example.com", "G"], row]
        response = api.import_contacts(rows, listName="L")
        assert (response["code"], "contactData[1]" in response["message"]) == (400, True)
        assert (api.emulator.contacts(), api.emulator.lists()) == ([], [])
        api.emulator.change_settings(import_bad_row="skip")
        assert api.import_contacts(rows, listName="L")["code"] == 200
        assert emails(api.emulator, "L") == ["good@example.com"]
        api.emulator.reset()


def test_settings_of_the_import(api: Api) -> None:
    api.emulator.change_settings(import_text_only=True, import_max_rows=2, contact_properties=["tier"])
    assert api.import_contacts([["a@example.com", 7]])["code"] == 400
    assert api.import_contacts([["a@example.com", "A"]] * 2)["code"] == 200
    assert "2 rows" in api.import_contacts([["a@example.com", "A"]] * 3)["message"]
    mapping = [*IMPORT_MAPPING, {"columnNum": 1, "propertyName": "shoeSize"}]
    assert "shoeSize" in api.import_contacts([["a@example.com", "A"]], contactDataMapping=mapping)["message"]


def test_what_does_not_exist(api: Api) -> None:
    api.rejected(404, "contacts/list/get", listName="nowhere")
    api.rejected(404, "contacts/get", email="nobody@example.com")
    for given in ({}, {"email": ""}):
        api.rejected(400, "contacts/get", **given)
    api.emulator.change_settings(contact_not_found="null")
    assert api.ok("contacts/get", email="nobody@example.com")["contact"] is None
    api.emulator.change_settings(contact_not_found="absent", not_found_code=200)
    assert "contact" not in api.ok("contacts/get", email="nobody@example.com")
    assert api.ok("contacts/list/get", listName="nowhere")["totalRecords"] == 0


def page(api: Api, index: int = 1, size: int | None = None) -> list[str]:
    response = api.ok("contacts/list/get", listName="L", pageIndex=index, pageSize=size)
    assert response["requestId"]
    assert response["totalRecords"] == api.emulator.contact_count("L")
    return [contact["email"].partition("@")[0] for contact in response["contactList"]]


def test_pages_hold_every_contact_of_a_list_once(api: Api) -> None:
    api.emulator.add_list("L", count=1001)
    assert [len(page(api, size=size)) for size in (None, 1000, 1001)] == [200, 1000, 1000]
    assert [name for index in range(1, 7) for name in page(api, index)] == [f"l-{number}" for number in range(1001)]
    assert page(api, 7) == []
    api.emulator.change_settings(oversized_page="reject")
    api.rejected(400, "contacts/list/get", "1000", listName="L", pageSize=1001)


def test_lists_of_other_teams_need_permission(api: Api) -> None:
    api.emulator.add_list("L", ["other@example.com"], team="Sales")
    api.ok("lists/add", listName="L")
    assert api.ok("contacts/list/get", listName="L", teamName="Marketing")["contactList"] == []
    api.rejected(403, "contacts/list/get", "Sales", listName="L", teamName="Sales")
    api.emulator.change_settings(cross_team_permission=True)
    contacts = api.ok("contacts/list/get", listName="L", teamName="Sales")["contactList"]
    assert [contact["email"] for contact in contacts] == ["other@example.com"]


def test_a_deleted_contact_leaves_its_lists(api: Api) -> None:
    api.emulator.add_list("L", ["a@example.com", "b@example.com"])
    api.ok("contacts/delete", email="A@example.com")
    assert emails(api.emulator) == emails(api.emulator, "L") == ["b@example.com"]
    api.rejected(404, "contacts/delete", email="a@example.com")


TEMPLATE = {"templateContent": "<p>{{name}}</p>", "templateSubject": "Hello"}


def test_a_list_has_the_fields_of_the_specification(api: Api) -> None:
    api.emulator.clock.freeze("2026-03-01T12:00:00Z")
    api.ok("lists/add", listName="L", listDescription="d")
    expected: dict[str, Any] = {
        "Id": 1, "TeamId": 7, "ListName": "L", "ListStatus": 1, "ListType": 1, "ListFilters": "",
        "CreateUserId": 1001, "CreateDate": "2026-03-01T12:00:00Z", "ModifyDate": "2026-03-01T12:00:00Z",
    }  # fmt: skip
    assert api.ok("lists/get") == {"code": 200, "message": "", "lists": [expected], "totalRecords": 1}
    api.emulator.change_settings(list_name_key="listName")
    expected["listName"] = expected.pop("ListName")
    assert api.ok("lists/get")["lists"] == [expected]


def test_names_of_lists_are_unique(api: Api) -> None:
    api.ok("lists/add", listName="L")
    for sandbox in (False, True):
        api.rejected(400, "lists/add", "L", listName="L", sandboxMode=sandbox)
    assert len(api.emulator.lists()) == 1


def test_lists_are_searched_and_sorted(api: Api) -> None:
    api.emulator.add_list("News Germany")
    api.emulator.clock.advance(60)
    api.emulator.add_list("News France", dynamic=True, filters="country = 'fr'")
    api.emulator.clock.advance(60)
    api.emulator.add_list("Staff")
    api.emulator.clock.advance(60)
    api.ok("contacts/upsert", email="a@example.com", listName="News Germany")

    def names(**body: Any) -> list[str]:
        return [each["ListName"] for each in api.ok("lists/get", **body)["lists"]]

    assert names(search="news") == ["News France", "News Germany"]
    assert names(listType=0) == ["News France"]
    assert names(listType=1, sort="CreateDate") == ["Staff", "News Germany"]
    assert names(sort="ModifyDate")[0] in ("News Germany", "Staff")
    assert api.ok("lists/get", listType=0)["lists"][0]["ListFilters"] == "country = 'fr'"
    api.emulator.change_settings(list_sort_descending=False, contains_ignores_case=False)
    assert names(sort="CreateDate") == ["News Germany", "News France", "Staff"]
    assert names(search="news") == []
    for wrong in ({"listType": 2}, {"sort": "Name"}, {"search": 1}):
        api.rejected(400, "lists/get", **wrong)


def test_a_deleted_list_keeps_its_contacts(api: Api) -> None:
    api.emulator.add_list("L", ["a@example.com"])
    api.ok("lists/delete", listName="L", sandboxMode=True)
    assert api.emulator.contact_count("L") == 1
    api.ok("lists/delete", listName="L")
    assert (api.emulator.lists(), api.emulator.contact_count()) == ([], 1)
    api.ok("lists/add", listName="L")
    assert api.ok("contacts/list/get", listName="L")["totalRecords"] == 0


def test_a_template_has_the_fields_of_the_specification(api: Api) -> None:
    api.emulator.clock.freeze("2026-03-01T12:00:00.123+00:00")
    api.ok("campaign/mail/template/add", templateName="welcome", **TEMPLATE)
    created = {"templateName": "welcome", "createDate": "2026-03-01 12:00:00.123"}
    assert api.ok("campaign/mail/template/get")["templateList"] == [created | TEMPLATE]
    assert api.emulator.templates()[0]["editor"] == "DRAG"
    api.ok("campaign/mail/template/delete", templateName="welcome")
    assert api.ok("campaign/mail/template/get")["totalRecords"] == 0


def test_wrong_templates(api: Api) -> None:
    good = {"templateName": "t", **TEMPLATE}
    for name in good:
        for wrong in ("", None):
            api.rejected(400, "campaign/mail/template/add", name, **good | {name: wrong})
    api.rejected(400, "campaign/mail/template/add", "editorType", **good, editorType="drag")
    api.ok("campaign/mail/template/add", **good, editorType="CLASSIC")
    api.emulator.change_settings(template_name_unit="characters")
    api.ok("campaign/mail/template/add", **good | {"templateName": "ü" * 250})
    api.rejected(400, "campaign/mail/template/add", **good)


def test_templates_are_filtered_by_a_part_of_their_name(api: Api) -> None:
    for name in ("welcome", "welcome back", "goodbye", "100%_off"):
        api.emulator.add_template(name, subject="s", content="c")
    for text, names in (("welcome", ["welcome back", "welcome"]), ("%_o", ["100%_off"])):
        response = api.ok("campaign/mail/template/get", templateName=text)
        assert [each["templateName"] for each in response["templateList"]] == names
        assert response["totalRecords"] == len(names)


@pytest.mark.parametrize(
    ("operation", "records", "add"),
    [
        ("lists/get", "lists", "add_list"),
        ("campaign/mail/template/get", "templateList", "add_template"),
        ("campaign/mail/get", "mailList", "add_campaign"),
    ],
)
def test_pages(api: Api, operation: str, records: str, add: str) -> None:
    for number in range(23):
        getattr(api.emulator, add)(f"n{number}", **{"subject": "s", "content": "c"} if add == "add_template" else {})
    pages = [api.ok(operation, pageIndex=index) for index in (1, 2, 3, 4)]
    assert [len(page[records]) for page in pages] == [10, 10, 3, 0]
    assert {page["totalRecords"] for page in pages} == {23}
    assert len({str(record) for page in pages for record in page[records]}) == 23
    assert api.ok(operation)[records] == pages[0][records]
    for index in (2**31, 2**63, 10**30):
        assert api.ok(operation, pageIndex=index, pageSize=index)[records] == []
    for wrong in ({"pageSize": 0}, {"pageIndex": 0}, {"pageSize": "10"}, {"pageIndex": 1.5}, {"pageSize": True}):
        api.rejected(400, operation, next(iter(wrong)), **wrong)
    api.emulator.change_settings(max_page_size=3)
    assert len(api.ok(operation, pageSize=5000)[records]) == 3
    api.emulator.change_settings(oversized_page="reject")
    api.rejected(400, operation, pageSize=4)
