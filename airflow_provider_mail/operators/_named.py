"""Base classes of the operators that create or delete a resource by its name."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_provider_mail._task.mixin import MailTaskMixin

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_mail.api._core.requests import Flow, MailRequest


class BaseNamedOperator(MailTaskMixin, BaseOperator):
    ui_color = "#e6f1f2"

    thing: ClassVar[str]
    """The kind of resource, for the log."""

    identified_by: ClassVar[tuple[str, ...]]
    """The arguments that the result and the log show; empty if the name is a person's address."""

    def _result(self, done: str, changed: bool) -> dict[str, Any]:
        sandbox = self.sandbox_mode or self.hook.config.sandbox
        identity = {name: str(getattr(self, name)) for name in self.identified_by}
        name_text = " ".join([self.thing, *map(repr, identity.values())])
        if not changed:
            reason = f"{name_text} exists" if done == "created" else f"there is no {name_text} to be {done}"
            self.log.info("Nothing to do: %s.", reason)
        elif sandbox:
            self.log.info("Sandbox: %s would be %s; nothing was changed.", name_text, done)
        else:
            self.log.info("%s was %s.", name_text.capitalize(), done)
        return {**identity, done: changed and not sandbox, "sandbox": sandbox}


class BaseCreateOperator(BaseNamedOperator):
    """Create the resource, unless an equal one exists. If a different one has that name, fail and name the differences.

    Returns the name, ``created`` and ``sandbox``.
    """

    if_different: ClassVar[str] = "choose another name, or delete it"
    """What to do about a different resource of that name."""

    @abstractmethod
    def creation(self, context: Context) -> MailRequest[Any]:
        """Build the request that creates the resource."""

    def replacement(self, context: Context) -> MailRequest[Any] | None:
        return None

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_mail.api.flows.create_once import create

        with self.mail_errors():
            created = self.hook.run(
                create(self.creation(context), replace=self.replacement(context), advice=self.if_different)
            )
            return self._result("created", created)


class BaseRemoveOperator(BaseNamedOperator):
    """Remove the resource, if it exists."""

    ignore_if_missing: bool
    done: ClassVar[str]
    """The participle for the log, such as ``deleted``; also the key of the result that shows whether it was done."""

    @abstractmethod
    def removal(self, context: Context) -> Flow[bool]:
        """Remove the resource; return whether it existed."""

    def execute(self, context: Context) -> dict[str, Any]:
        with self.mail_errors():
            return self._result(self.done, self.hook.run(self.removal(context)))


class BaseDeleteOperator(BaseRemoveOperator):
    """Delete the resource permanently.

    Returns the name, ``deleted`` and ``sandbox``.
    """

    done = "deleted"

    @abstractmethod
    def deletion(self, context: Context) -> MailRequest[Any]:
        """Build the request that deletes the resource."""

    def removal(self, context: Context) -> Flow[bool]:
        from airflow_provider_mail.api.flows.create_once import delete

        return delete(self.deletion(context), missing_ok=self.ignore_if_missing)
