"""Contact lists and email templates, and the paging that they share with campaigns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulator.conftest import Api

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
