"""GET /products/:id (Python): the parameter arrives by name."""

PRODUCTS = {"1": "Teapot", "2": "Cup", "3": "Tray"}


def handler(event, id):
    if id not in PRODUCTS:
        return {"status": 404, "body": {"error": "no such product"}}
    return {"id": int(id), "name": PRODUCTS[id]}
