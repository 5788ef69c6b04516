# @summary List the newest links and their visits
from _links import UNAUTHORIZED, database, is_authorized


def handler(event):
    if not is_authorized(event):
        return UNAUTHORIZED
    rows = database(event["env"]).execute("SELECT * FROM links ORDER BY created_at DESC, code LIMIT 100")
    return [dict(row) for row in rows]
