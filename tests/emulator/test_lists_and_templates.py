"""Contact lists and email templates."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.emulator.conftest import Api


class TestLists:
    def test_shape_and_spelling(self, api: Api) -> None:
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

    def test_names_are_unique(self, api: Api) -> None:
        api.ok("lists/add", listName="L")
        assert "L" in api.refused(400, "lists/add", listName="L")
        api.refused(400, "lists/add", listName="L", sandboxMode=True)
        assert len(api.emulator.lists()) == 1

    def test_search_type_and_sort(self, api: Api) -> None:
        api.emulator.add_list("News Germany")
        api.emulator.clock.advance(60)
        api.emulator.add_list("News France", dynamic=True, filters="country = 'fr'")
        api.emulator.clock.advance(60)
        api.emulator.add_list("Staff")
        api.ok("contacts/upsert", email="a@example.com", listName="News Germany")

        def names(**body: Any) -> list[str]:
            return [found["ListName"] for found in api.ok("lists/get", **body)["lists"]]

        assert names(search="news") == ["News France", "News Germany"]
        assert names(listType=0) == ["News France"]
        assert names(listType=1, sort="CreateDate") == ["Staff", "News Germany"]
        assert names(sort="ModifyDate")[0] in ("News Germany", "Staff")
        assert api.ok("lists/get", listType=0)["lists"][0]["ListFilters"] == "country = 'fr'"
        api.emulator.change_settings(list_sort_descending=False, contains_ignores_case=False)
        assert names(sort="CreateDate") == ["News Germany", "News France", "Staff"]
        assert names(search="news") == []
        for wrong in ({"listType": 2}, {"sort": "Name"}, {"search": 1}):
            api.refused(400, "lists/get", **wrong)

    def test_delete(self, api: Api) -> None:
        api.emulator.add_list("L", ["a@example.com"])
        api.ok("lists/delete", listName="L", sandboxMode=True)
        assert api.emulator.contact_count("L") == 1
        api.ok("lists/delete", listName="L")
        assert (api.emulator.lists(), api.emulator.contact_count()) == ([], 1)
        api.refused(404, "lists/delete", listName="L")
        api.emulator.change_settings(not_found_code=200)
        api.ok("lists/delete", listName="L")

    def test_a_recreated_list_is_empty(self, api: Api) -> None:
        api.emulator.add_list("L", ["a@example.com"])
        api.ok("lists/delete", listName="L")
        api.ok("lists/add", listName="L")
        assert api.ok("contacts/list/get", listName="L")["totalRecords"] == 0


class TestTemplates:
    TEMPLATE: ClassVar = {"templateContent": "<p>{{name}}</p>", "templateSubject": "Hello"}

    def test_shape(self, api: Api) -> None:
        api.emulator.clock.freeze("2026-03-01T12:00:00.123+00:00")
        api.ok("campaign/mail/template/add", templateName="welcome", **self.TEMPLATE)
        assert api.ok("campaign/mail/template/get")["templateList"] == [
            {"templateName": "welcome", "createDate": "2026-03-01 12:00:00.123", **self.TEMPLATE}
        ]
        assert api.emulator.templates()[0]["editor"] == "DRAG"

    @pytest.mark.parametrize("missing", ["templateName", "templateContent", "templateSubject"])
    def test_required_fields(self, api: Api, missing: str) -> None:
        body = {"templateName": "t", **self.TEMPLATE}
        for wrong in ({**body, missing: ""}, {key: value for key, value in body.items() if key != missing}):
            assert missing in api.refused(400, "campaign/mail/template/add", **wrong)

    def test_unique_name_and_editor(self, api: Api) -> None:
        api.ok("campaign/mail/template/add", templateName="t", editorType="CLASSIC", **self.TEMPLATE)
        api.refused(400, "campaign/mail/template/add", templateName="t", **self.TEMPLATE)
        api.refused(400, "campaign/mail/template/add", templateName="u", editorType="drag", **self.TEMPLATE)

    def test_the_filter_is_contains(self, api: Api) -> None:
        for name in ("welcome", "welcome back", "goodbye", "100%_off"):
            api.emulator.add_template(name, subject="s", content="c")
        found = api.ok("campaign/mail/template/get", templateName="welcome")
        assert [one["templateName"] for one in found["templateList"]] == ["welcome back", "welcome"]
        assert found["totalRecords"] == 2
        assert api.ok("campaign/mail/template/get", templateName="%_o")["totalRecords"] == 1

    def test_delete(self, api: Api) -> None:
        api.emulator.add_template("t", subject="s", content="c")
        api.ok("campaign/mail/template/delete", templateName="t")
        api.refused(404, "campaign/mail/template/delete", templateName="t")
        assert api.ok("campaign/mail/template/get")["totalRecords"] == 0


@pytest.mark.parametrize(
    ("operation", "records", "arrange"),
    [
        ("lists/get", "lists", "add_list"),
        ("campaign/mail/template/get", "templateList", "add_template"),
        ("campaign/mail/get", "mailList", "add_campaign"),
    ],
)
class TestPaging:
    def test_default_size_is_10_and_pages_hold_everything_once(
        self, api: Api, operation: str, records: str, arrange: str
    ) -> None:
        extra = {"subject": "s", "content": "c"} if arrange == "add_template" else {}
        for number in range(23):
            getattr(api.emulator, arrange)(f"n{number}", **extra)
        pages = [api.ok(operation, pageIndex=index) for index in (1, 2, 3, 4)]
        assert [len(page[records]) for page in pages] == [10, 10, 3, 0]
        assert {page["totalRecords"] for page in pages} == {23}
        everything = [str(record) for page in pages for record in page[records]]
        assert len(set(everything)) == 23
        assert api.ok(operation)[records] == pages[0][records]

    def test_sizes_and_indexes(self, api: Api, operation: str, records: str, arrange: str) -> None:
        extra = {"subject": "s", "content": "c"} if arrange == "add_template" else {}
        for number in range(4):
            getattr(api.emulator, arrange)(f"n{number}", **extra)
        for wrong in ({"pageSize": 0}, {"pageIndex": 0}, {"pageSize": "10"}, {"pageIndex": 1.5}, {"pageSize": True}):
            assert next(iter(wrong)) in api.refused(400, operation, **wrong)
        api.emulator.change_settings(max_page_size=3)
        assert len(api.ok(operation, pageSize=5000)[records]) == 3
        api.emulator.change_settings(oversized_page="reject")
        api.refused(400, operation, pageSize=4)
