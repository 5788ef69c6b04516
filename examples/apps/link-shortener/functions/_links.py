"""The links in SQLite, and the check of the API key. Private: names that start with _ are never routes."""

import hmac
import sqlite3
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS links (
    code TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    visits INTEGER NOT NULL DEFAULT 0,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
) WITHOUT ROWID
"""

_connection = None


def database(env):
    """One connection per worker: a worker runs one call at a time."""
    global _connection
    if _connection is None:
        path = Path(__file__).parent / env["LINKS_DB"]
        path.parent.mkdir(parents=True, exist_ok=True)
        # Other workers write to the same file: wait up to 3 s for their locks instead of failing.
        connection = sqlite3.connect(path, timeout=3, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(SCHEMA)
        connection.row_factory = sqlite3.Row
        _connection = connection
    return _connection


UNAUTHORIZED = {
    "status": 401,
    "headers": {"WWW-Authenticate": "Bearer"},
    "body": {"error": "send the API key: Authorization: Bearer <key>"},
}


def is_authorized(event):
    expected = f"Bearer {event['env']['LINKS_KEY']}"
    given = event["headers"].get("authorization", "")
    return hmac.compare_digest(given.encode(), expected.encode())
