"""Run as a process: prints, as JSON, what Airflow knows of the connection type and what it said about us."""

from __future__ import annotations

import json
import logging
import warnings
from typing import Any

OURS = ("airflow_provider_mail", "airflow-provider-mail", "MailHook", "'mail'")
said: list[str] = []


class Listener(logging.Handler):
    """Keeps warnings and worse that name us."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def note(text: str) -> None:
    if any(name in text for name in OURS):
        said.append(text)


with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    # First the form, as in the API server: on 3.1 it stands in for the packages that the hook's widgets are made of.
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
    from airflow.providers_manager import ProvidersManager

    listener = Listener(logging.WARNING)
    logging.getLogger().addHandler(listener)
    logging.getLogger("airflow.providers_manager").addHandler(listener)

    (form,) = (each for each in HookMetaService.hook_meta_data() if each.connection_type == "mail")
    manager = ProvidersManager()
    hook = manager.hooks["mail"]
    also_read = (manager.connection_form_widgets, manager.field_behaviours, manager.trigger, manager.notification)

    known: dict[str, Any] = {
        "form": form.model_dump(mode="json"),
        "hook": {name: value for name, value in hook._asdict().items() if name != "dialects"},
    }
for each in warned:
    note(f"{each.category.__name__}: {each.message} ({each.filename})")
print(json.dumps({**known, "said": said}))
