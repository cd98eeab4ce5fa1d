"""Base classes of the operators that create or delete a resource by its name."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.arguments import MailTaskMixin

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api._core.requests import Flow
    from airflow_provider_mail.api.flows.ensure import Creatable, Deletable


class BaseNamedOperator(MailTaskMixin, BaseOperator):
    """Create or delete one resource."""

    ui_color = "#e6f1f2"

    thing: ClassVar[str]
    """The kind of resource, for the log."""

    identified_by: ClassVar[tuple[str, ...]]
    """The arguments that the result and the log show; empty where the name is a person's address."""

    def _result(self, done: str, changed: bool) -> dict[str, Any]:
        sandbox = self.sandbox_mode or self.hook.config.sandbox
        identity = {name: str(getattr(self, name)) for name in self.identified_by}
        named = " ".join([self.thing, *map(repr, identity.values())])
        if not changed:
            found = f"{named} exists" if done == "created" else f"there is no {named} to be {done}"
            self.log.info("Nothing to do: %s.", found)
        elif sandbox:
            self.log.info("Sandbox: %s would be %s; nothing was changed.", named, done)
        else:
            self.log.info("%s was %s.", named.capitalize(), done)
        return {**identity, done: changed and not sandbox, "sandbox": sandbox}


class BaseCreateOperator(BaseNamedOperator):
    """Create the resource, unless an equal one exists. A different one of that name fails the task and is described.

    Returns the name, ``created`` and ``sandbox``.
    """

    if_different: ClassVar[str] = "choose another name, or delete it"
    """What to do about a different one of that name."""

    @abstractmethod
    def creation(self, context: Context) -> Creatable:
        """Build the request that creates it."""

    def replacement(self, context: Context) -> Deletable | None:
        """Build the request that deletes an existing, different one first; ``None`` where it is kept."""
        return None

    def execute(self, context: Context) -> dict[str, Any]:
        """Look the name up; create the resource when there is none."""
        from airflow_provider_mail.api.flows.ensure import create

        with self.mail_errors():
            created = self.hook.run(
                create(self.creation(context), replace=self.replacement(context), advice=self.if_different)
            )
            return self._result("created", created)


class BaseRemoveOperator(BaseNamedOperator):
    """Remove the resource, if it exists."""

    ignore_if_missing: bool
    done: ClassVar[str]
    """What has then happened to it, and the key of the result that says whether it has."""

    @abstractmethod
    def removal(self, context: Context) -> Flow[bool]:
        """Remove it; return whether there was anything to remove."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Look the name up; remove the resource when it exists."""
        with self.mail_errors():
            return self._result(self.done, self.hook.run(self.removal(context)))


class BaseDeleteOperator(BaseRemoveOperator):
    """Delete the resource for good.

    Returns the name, ``deleted`` and ``sandbox``.
    """

    done = "deleted"

    @abstractmethod
    def deletion(self, context: Context) -> Deletable:
        """Build the request that deletes it."""

    def removal(self, context: Context) -> Flow[bool]:
        from airflow_provider_mail.api.flows.ensure import delete

        return delete(self.deletion(context), missing_ok=self.ignore_if_missing)
