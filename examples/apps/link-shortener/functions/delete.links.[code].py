# @summary Delete a link
from _links import UNAUTHORIZED, database, is_authorized


def handler(event, code):
    if not is_authorized(event):
        return UNAUTHORIZED
    deleted = database(event["env"]).execute("DELETE FROM links WHERE code = ?", (code,)).rowcount
    return {"status": 204} if deleted else {"status": 404, "body": {"error": f"no link {code}"}}
