"""Tokens, limits and the database of the orders."""

import base64
import hashlib
import hmac
import json
import sqlite3
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCTS = {product["sku"]: product for product in json.loads((ROOT / "_products.json").read_text())}

TABLES = """
CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY, user TEXT NOT NULL, lines TEXT NOT NULL, cents INTEGER NOT NULL, created_at INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS orders_by_user ON orders (user, created_at);
"""

#: The only head that is accepted: the token does not choose how it is checked.
HEAD = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"

_connection = None


def database():
    """One connection per worker: a worker runs one call at a time."""
    global _connection
    if _connection is None:
        path = ROOT.parent / "data" / "shop.db"
        path.parent.mkdir(exist_ok=True)
        connection = sqlite3.connect(path, timeout=3, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(TABLES)
        _connection = connection
    return _connection


def read_user(event):
    """The user of a valid token; None for none."""
    scheme, _, token = event["headers"].get("authorization", "").partition(" ")
    signed, _, signature = token.rpartition(".")
    head, _, claims = signed.partition(".")
    if scheme != "Bearer" or head != HEAD:
        return None
    expected = hmac.new(event["env"]["TOKEN_SECRET"].encode(), signed.encode(), hashlib.sha256).digest()
    encoded = base64.urlsafe_b64encode(expected).rstrip(b"=")
    if not hmac.compare_digest(encoded, signature.encode()):
        return None
    fields = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    return fields["sub"] if fields["exp"] > time.time() else None


def to_order(row):
    number, lines, cents, created_at = row
    return {"id": number, "lines": json.loads(lines), "cents": cents, "created_at": created_at}


UNAUTHORIZED = {"status": 401, "headers": {"WWW-Authenticate": "Bearer"}, "body": {"error": "log in first"}}
