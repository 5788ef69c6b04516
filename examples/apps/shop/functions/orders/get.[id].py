# @summary Show an order of the user (Python)
from _shop import UNAUTHORIZED, database, read_user, to_order


def handler(event, id):
    user = read_user(event)
    if user is None:
        return UNAUTHORIZED
    # The user is part of the query: the order of another user is as unknown as one that does not exist.
    row = database().execute(
        "SELECT id, lines, cents, created_at FROM orders WHERE id = ? AND user = ?", (int(id), user)
    ).fetchone()
    return to_order(row) if row else {"status": 404, "body": {"error": f"no order {id}"}}
