# @summary List the orders of the user (Python)
from _shop import UNAUTHORIZED, database, read_user, to_order


def handler(event):
    user = read_user(event)
    if user is None:
        return UNAUTHORIZED
    rows = database().execute(
        "SELECT id, lines, cents, created_at FROM orders WHERE user = ? ORDER BY id DESC LIMIT 100", (user,)
    )
    return [to_order(row) for row in rows]
