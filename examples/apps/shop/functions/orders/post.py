# @summary Order products (Python)
import json
import time

from _shop import PRODUCTS, UNAUTHORIZED, database, read_user

ORDERS_PER_MINUTE = 10


def handler(event):
    user = read_user(event)
    if user is None:
        return UNAUTHORIZED
    # post.schema.json has checked the body. Prices come from the catalog, never from the client.
    lines = json.loads(event["body"])["lines"]
    unknown = [line["sku"] for line in lines if line["sku"] not in PRODUCTS]
    if unknown:
        return {"status": 422, "body": {"error": f"unknown product {unknown[0]}"}}
    cents = sum(PRODUCTS[line["sku"]]["cents"] * line["count"] for line in lines)
    now = int(time.time())
    shop = database()
    # The lock is taken before the count, so that parallel orders cannot pass the limit together.
    shop.execute("BEGIN IMMEDIATE")
    try:
        recent, oldest = shop.execute(
            "SELECT COUNT(*), MIN(created_at) FROM orders WHERE user = ? AND created_at > ?", (user, now - 60)
        ).fetchone()
        if recent >= ORDERS_PER_MINUTE:
            headers = {"Retry-After": oldest + 60 - now}
            return {"status": 429, "headers": headers, "body": {"error": "too many orders, try again later"}}
        values = (user, json.dumps(lines), cents, now)
        number = shop.execute(
            "INSERT INTO orders (user, lines, cents, created_at) VALUES (?, ?, ?, ?)", values
        ).lastrowid
    finally:
        # Without an insert there is nothing to undo; a failed one inserted nothing.
        shop.execute("COMMIT")
    return {"status": 201, "headers": {"Location": f"/orders/{number}"}, "body": {"id": number, "cents": cents}}
