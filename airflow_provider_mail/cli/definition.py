"""The declaration of the commands. Every Airflow command imports this module, so its imports must stay cheap."""

from __future__ import annotations

from airflow.cli.cli_config import ARG_OUTPUT, ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

CONN_ID = Arg(("-c", "--conn-id"), help="the connection (mail_default)", default="mail_default")
SQL_CONN_ID = Arg(
    ("--sql-conn-id",),
    help="connection of a database that DAGs use, to check that its provider is installed; may be repeated",
    action="append",
    default=[],
)
SENDER = Arg(("--sender",), help="sender address of campaigns; may be repeated", action="append", default=[])
LIST = Arg(("--list",), help="a contact list that must exist; may be repeated", action="append", default=[])
DAG_ID = Arg(("--dag-id",), help="check what the tasks of this DAG need, instead of the other arguments")
STRICT = Arg(("--strict",), help="exit with 1 for warnings too", action="store_true")
NAME = Arg(("name",), help="the campaign's exact name")
PART = Arg(("--name",), help="only campaigns whose name contains this")
STATUS = Arg(
    ("--status",), help="only campaigns with this mailStatus", choices=("draft", "sending", "complete", "failed")
)
LIMIT = Arg(("--limit",), help="maximum number, newest first (50)", type=int, default=50)
ALL_TEAM = Arg(("--all-team",), help="campaigns of all teams (requires a permission)", action="store_true")
WATCH = Arg(("-w", "--watch"), help="poll until it is sent or has failed", action="store_true")
INTERVAL = Arg(("--interval",), help="seconds between polls (10)", type=float, default=10.0)
PREFIX = Arg(("--prefix",), help="cancel the scheduled campaigns whose names begin with this")
ALL_SCHEDULED = Arg(("--all-scheduled",), help="cancel all scheduled campaigns of the account", action="store_true")
HOLD_ALL = Arg(
    ("--hold",),
    help="hold campaigns, batches and imports of all DAGs until they are released, before anything is cancelled",
    action="store_true",
)
ONLY_CONN_ID = Arg(
    ("--only-conn-id",), help="hold or release only the mass mail of this connection; without it, of all connections"
)
REASON = Arg(("--reason",), help="why; shown in the log of held tasks", default="")
HOST = Arg(("--host",), help="interface to listen on (127.0.0.1)", default="127.0.0.1")
PORT = Arg(("--port",), help="port to listen on, 0 for a free one (8025)", default="8025")
FILE = Arg(("--file",), help="SQLite file that keeps the state; without it, memory")
API_KEY = Arg(("--api-key",), help="API key to accept")
SETTING = Arg(("--setting",), help="NAME=VALUE, see --list-settings; may be repeated", action="append", default=[])
LIST_SETTINGS = Arg(("--list-settings",), help="list all settings with their defaults", action="store_true")
FORWARD_SMTP = Arg(("--forward-smtp",), help="HOST:PORT of an SMTP server that gets a copy of each delivered mail")
DEMO_DATA = Arg(("--demo-data",), help="start with senders, lists, templates and campaigns", action="store_true")
PASTE = Arg(("--paste",), help="do not listen for the redirect; paste its address", action="store_true")
WAIT = Arg(("--wait",), help="seconds to wait for the redirect (300)", type=float, default=300.0)
MISSING_STATE = Arg(
    ("--allow-missing-state",),
    help="accept a redirect without the state, for a service that never returns it; any page open in the browser could "
    "then send its own code",
    action="store_true",
)
TOKEN_FILE = Arg(("--token-file",), help="store the token in this new file instead of the connection")
RECEIVE_ACTION = Arg(
    ("action",),
    help="empty: receive until the process is ended; rotate: replace the secret token in the URL; status: show what "
    "waits in the inbox, the valid tokens, and with --sql-conn-id the dead letters",
    nargs="?",
    choices=("rotate", "status"),
)
RECEIVE_PORT = Arg(("--port",), help="port to listen on (8026)", type=int, default=8026)
WORKERS = Arg(("--workers",), help="number of processes (1)", type=int, default=1)
URL = Arg(("--url",), help="rotate: URL of the receiver, without the token ([mail] receive_url, or the URL as saved)")
GRACE_HOURS = Arg(("--grace-hours",), help="rotate: hours until former tokens end (72)", type=float, default=72.0)
ENABLE = Arg(("--enable",), help="rotate: switch on pushing, with all events", action="store_true")
NO_SAVE = Arg(("--no-save",), help="rotate: print the URL instead of saving it at the service", action="store_true")
STATUS_CONN_ID = Arg(("--sql-conn-id",), help="status: connection of the database with the dead letters")
PROMETHEUS = Arg(("--prometheus",), help="status: print metrics as Prometheus reads them", action="store_true")

EVENTS_CONN_ID = Arg(("--sql-conn-id",), help="connection of the database with the tables", required=True)
EVENTS_TABLE = Arg(("--table",), help="table of events (mail_events)", default="mail_events")
DEAD_LETTERS_TABLE = Arg(
    ("--dead-letters-table",), help="table of dead letters (mail_dead_letters)", default="mail_dead_letters"
)
EMAIL = Arg(("--email",), help="address of the recipient; - reads it from standard input", required=True)
INBOX_CONN_ID = Arg(("--inbox-conn-id",), help="connection of the inbox ([mail] inbox_conn_id)")
INBOX_TABLE = Arg(("--inbox-table",), help="table of the inbox ([mail] inbox_table)")
STATE_CONN_ID = Arg(("--sql-conn-id",), help="connection of the database with the states of audiences", required=True)
STATE_TABLE = Arg(("--table",), help="table of audiences (mail_audiences)", default="mail_audiences")
KEEP_DAYS = Arg(("--keep-days",), help="days for which mails are remembered", type=float, required=True)
TASK = Arg(("--task",), help="the task and its run as `why` shows them", required=True)
AUDIENCE_NAME = Arg(("audience",), help="the audience as status shows it")
STORES = Arg(("store",), help="what their names have behind the time, as a warning of the import says", nargs="+")
YES = Arg(("--yes",), help="delete them, and not only print their names", action="store_true")


def get_cli_commands() -> list[CLICommand]:
    """Return the commands (``cli`` of the provider information, used by Airflow 3.2 and later)."""
    doctor = "Check connection, databases, triggerer, senders and lists, and print how to fix them"
    oauth = (
        _command("login", "Obtain an access token and store it in the connection", "oauth.login",
                 CONN_ID, PASTE, WAIT, TOKEN_FILE, MISSING_STATE),
        _command("status", "Show type, age and remaining lifetime of the token", "oauth.status", CONN_ID, ARG_OUTPUT),
    )  # fmt: skip
    event_tables = (EVENTS_CONN_ID, EVENTS_TABLE, DEAD_LETTERS_TABLE)
    events = (
        _command("replay", "Read dead letters again, and store the events that can be read now", "receive.replay",
                 *event_tables),
        _command("erase", "Delete the events of a recipient: from inbox, dead letters and table", "receive.erase",
                 EMAIL, *event_tables, INBOX_CONN_ID, INBOX_TABLE),
    )  # fmt: skip
    states = (STATE_CONN_ID, STATE_TABLE)
    audience = (
        _command("status", "Show the audiences of imports that send only changes", "commands.audience_status",
                 *states, ARG_OUTPUT),
        _command("reset", "Delete the state of an audience: its next run sends everybody", "commands.audience_reset",
                 AUDIENCE_NAME, *states),
        _command("prune", "Delete lists that no campaign needs, of another deployment or of lost XComs",
                 "commands.audience_prune", STORES, YES, CONN_ID),
        _command("why", "Show in which audiences a person is, or is excluded from, since when and by which run",
                 "commands.audience_why", EMAIL, *states, ARG_OUTPUT),
        _command("forget", "Take a person out of all audiences, for an erasure", "commands.audience_forget",
                 EMAIL, *states),
    )  # fmt: skip
    memory = (
        _command("create", "Create the tables of [mail] memory_conn_id", "commands.memory_create"),
        _command("why", "Show which mails a person had, when and from which task", "commands.memory_why",
                 EMAIL, ARG_OUTPUT),
        _command("forget", "Delete the mails of a person, for an erasure", "commands.memory_forget", EMAIL),
        _command("release", "Delete the mails of a task and its run that never went out, such as those of a campaign "
                 "that was cancelled; its people may then get them", "commands.memory_release", TASK),
        _command("expire", "Delete old mails; a person may then get them again", "commands.memory_expire", KEEP_DAYS),
    )  # fmt: skip
    commands = (
        _command("check", "Check whether a connection works", "commands.check", CONN_ID),
        _command("doctor", doctor, "doctor.doctor", CONN_ID, SQL_CONN_ID, SENDER, LIST, DAG_ID, STRICT,
                 ARG_OUTPUT),
        _command("campaigns", "List campaigns", "commands.campaigns",
                 CONN_ID, PART, STATUS, LIMIT, ALL_TEAM, ARG_OUTPUT),
        _command("campaign", "Show one campaign, or watch it until it is sent", "commands.campaign",
                 NAME, CONN_ID, WATCH, INTERVAL, ARG_OUTPUT),
        _command("stop", "Cancel scheduled campaigns, and hold new mass mail", "commands.stop",
                 CONN_ID, PREFIX, ALL_SCHEDULED, HOLD_ALL, ONLY_CONN_ID, REASON, ARG_OUTPUT),
        _command("release", "Release the hold", "commands.release", ONLY_CONN_ID),
        GroupCommand(name="oauth", help="OAuth 2.0: obtain an access token, show its lifetime", subcommands=oauth),
        _command("receive", "Receive the events that the service pushes, rotate the token, or show the state",
                 "receive.receive", RECEIVE_ACTION, HOST, RECEIVE_PORT, WORKERS, CONN_ID, URL, GRACE_HOURS,
                 ENABLE, NO_SAVE, STATUS_CONN_ID, DEAD_LETTERS_TABLE, PROMETHEUS, ARG_OUTPUT),
        GroupCommand(name="audience", help="Audiences of imports that send only changes", subcommands=audience),
        GroupCommand(name="memory", help="Who was mailed what", subcommands=memory),
        GroupCommand(name="events", help="Events after they were drained from the inbox", subcommands=events),
        _command("emulator", "Serve the emulator of the service", "commands.emulator",
                 HOST, PORT, FILE, API_KEY, SETTING, LIST_SETTINGS, FORWARD_SMTP, DEMO_DATA),
    )  # fmt: skip
    return [GroupCommand(name="mail", help="Email service of a connection", subcommands=commands)]


def _command(name: str, help: str, function: str, *args: Arg) -> ActionCommand:
    load = lazy_load_command(f"airflow_provider_mail.cli.{function}")
    return ActionCommand(name=name, help=help, func=load, args=args)
