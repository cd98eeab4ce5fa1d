"""An import that our client accepts reaches the service and reads back unchanged, whatever it is made of."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_mail import api
from tests.support.sampling import examples

anything = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
"""Every character that has a form in UTF-8."""


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str | None]]]:
    """Properties in some order, one of them the address, and rows of them with different addresses."""
    known = ("email", "name", "phoneNumber")
    others = draw(st.lists(anything.filter(lambda name: name not in known), unique=True, max_size=3))
    properties = draw(st.permutations(["email", *draw(st.sets(st.sampled_from(["name", "phoneNumber"]))), *others]))
    emails = draw(st.lists(st.emails(), min_size=1, max_size=5, unique_by=str.lower))
    rows = [[email if name == "email" else draw(st.none() | anything) for name in properties] for email in emails]
    return list(properties), rows


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(table=tables())
def test_an_import(table: tuple[list[str], list[list[str | None]]], client: api.MailClient):
    properties, rows = table
    mapping = [{"columnNum": n, "propertyName": name} for n, name in enumerate(properties)]
    body = {"contactData": rows, "contactDataMapping": mapping, "updateMode": 1, "listName": "imported"}
    client.send(api.ImportContacts.model_validate(body))
    found = [
        contact for page in client.pages(api.GetListContacts(list_name="imported", page_size=3)) for contact in page
    ]
    by_email = {contact.email: contact for contact in found}
    assert len(found) == len(rows)
    for row in rows:
        given_values = dict(zip(properties, row, strict=True))
        contact = by_email[given_values.pop("email")]
        assert contact.name == (given_values.pop("name", None) or contact.email)
        assert contact.phone_number == given_values.pop("phoneNumber", None)
        assert contact.properties == {name: value for name, value in given_values.items() if value is not None}
        client.send(api.DeleteContact(email=str(contact.email)))
    client.send(api.DeleteList(list_name="imported"))
