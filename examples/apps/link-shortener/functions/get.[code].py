# @summary Follow a short link
from _links import database


def handler(event, code):
    links = database(event["env"])
    if links.execute("UPDATE links SET visits = visits + 1 WHERE code = ?", (code,)).rowcount == 0:
        return {"status": 404, "body": {"error": f"no link {code}"}}
    (url,) = links.execute("SELECT url FROM links WHERE code = ?", (code,)).fetchone()
    # 302 and no-store: a browser that remembered the target would not be counted again.
    return {"status": 302, "headers": {"Location": url, "Cache-Control": "no-store"}}
