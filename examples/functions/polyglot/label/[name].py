"""GET /label/:name (Python): an SVG, text with a type of its own."""

from html import escape


def handler(event, name):
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="240" height="60">'
        f'<text x="12" y="38" font-size="24">{escape(name)}</text></svg>'
    )
    return {"status": 200, "headers": {"content-type": "image/svg+xml"}, "body": svg}
