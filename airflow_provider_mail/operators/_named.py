"""What the operators share that create or delete something by its name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin, check_flags

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api._core.requests import Flow
    from airflow_provider_mail.api.flows.ensure import Creatable, Deletable


class BaseNamedOperator(MailTaskMixin, BaseOperator):
    """Creates or deletes one thing.

    :param mail_conn_id: the connection.
    :param sandbox_mode: let the service check and change nothing.
    """

    template_fields: Sequence[str] = ("mail_conn_id",)
    ui_color = "#e6f1f2"

    thing: str
    """What it is, for the log."""

    def __init__(self, *, mail_conn_id: str = "mail_default", sandbox_mode: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_flags(sandbox_mode=sandbox_mode)
        self.mail_conn_id = mail_conn_id
        self.sandbox_mode = sandbox_mode

    @property
    @abstractmethod
    def identity(self) -> dict[str, str]:
        """Its name as the result and the log give it; empty where the name is a person's address."""

    def _result(self, done: str, changed: bool) -> dict[str, Any]:
        sandbox = self.sandbox_mode or self.hook.config.sandbox
        named = " ".join([self.thing, *(repr(name) for name in self.identity.values())])
        if not changed:
            self.log.info(
                "Nothing to do: %s %s.", named, "exists" if done == "created" else f"is not there to be {done}"
            )
        elif sandbox:
            self.log.info("Sandbox: %s would be %s; nothing was changed.", named, done)
        else:
            self.log.info("%s was %s.", named.capitalize(), done)
        return {**self.identity, done: changed and not sandbox, "sandbox": sandbox}


class BaseCreateOperator(BaseNamedOperator):
    """Creates it, unless it exists and is equal. Where one of that name differs, the task fails and says in what.

    Returns the name, ``created`` and ``sandbox``.
    """

    @abstractmethod
    def creation(self, context: Context) -> Creatable:
        """The request."""

    def replacement(self) -> Deletable | None:
        """The request that deletes one that exists and differs, where that is wanted."""
        return None

    def execute(self, context: Context) -> dict[str, Any]:
        """Look for it; create it when there is none."""
        from airflow_provider_mail.api.flows.ensure import create

        with self.mail_errors():
            created = self.hook.run(create(self.creation(context), replace=self.replacement()))
            return self._result("created", created)


class BaseRemoveOperator(BaseNamedOperator):
    """Does away with it, if it is there.

    :param ignore_if_missing: succeed when there is nothing of that name, which is also what a second try finds.
    """

    done: str
    """What has then happened to it, and the key of the result that says whether it has."""

    def __init__(self, *, ignore_if_missing: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_flags(ignore_if_missing=ignore_if_missing)
        self.ignore_if_missing = ignore_if_missing

    @abstractmethod
    def removal(self, context: Context) -> Flow[bool]:
        """What is done; whether there was anything to do."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Look for it; do away with it when it is there."""
        with self.mail_errors():
            return self._result(self.done, self.hook.run(self.removal(context)))


class BaseDeleteOperator(BaseRemoveOperator):
    """Deletes it for good.

    Returns the name, ``deleted`` and ``sandbox``.
    """

    done = "deleted"

    @abstractmethod
    def deletion(self, context: Context) -> Deletable:
        """The request."""

    def removal(self, context: Context) -> Flow[bool]:
        """Delete it."""
        from airflow_provider_mail.api.flows.ensure import delete

        return delete(self.deletion(context), missing_ok=self.ignore_if_missing)
