"""GET /chart?values=3,1,4: a bar chart as PNG."""

from _png import bar_chart


def handler(event):
    try:
        values = [float(part) for part in event["query"].get("values", "").split(",")]
    except ValueError:
        return {"status": 400, "body": {"error": "values must be numbers, such as ?values=3,1,4"}}
    if len(values) > 100 or any(not 0 <= value < 1e9 for value in values):
        return {"status": 400, "body": {"error": "at most 100 values, each from 0 to a thousand million"}}
    return {
        "status": 200,
        "headers": {"content-type": "image/png", "cache-control": "max-age=60"},
        "body": bar_chart(values),
    }
