# @summary Shorten a URL
import json
import secrets
import sqlite3

from _links import UNAUTHORIZED, database, is_authorized

# No 0 and O, 1, I and l: people read codes aloud.
ALPHABET = "23456789abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"


def handler(event):
    if not is_authorized(event):
        return UNAUTHORIZED
    # post.links.schema.json has checked the body.
    link = json.loads(event["body"])
    code = link.get("code") or "".join(secrets.choice(ALPHABET) for _ in range(7))
    try:
        database(event["env"]).execute("INSERT INTO links (code, url) VALUES (?, ?)", (code, link["url"]))
    except sqlite3.IntegrityError:
        return {"status": 409, "body": {"error": f"the code {code} is taken"}}
    return {"status": 201, "headers": {"Location": f"/{code}"}, "body": {"code": code, "url": link["url"]}}
