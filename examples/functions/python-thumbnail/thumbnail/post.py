"""POST /thumbnail?size=120: the image in the body, as a PNG that fits into a square of that size."""

import base64
import io

from PIL import Image, UnidentifiedImageError

LARGEST = 1024


def handler(event):
    size = str(event['query'].get('size', '120'))
    if not size.isdecimal() or not 1 <= int(size) <= LARGEST:
        return {'status': 400, 'body': {'error': '"size" must be a number from 1 to %d' % LARGEST}}
    if event['body_base64'] is None:
        return {'status': 415, 'body': {'error': 'the body must be an image'}}
    try:
        with Image.open(io.BytesIO(base64.b64decode(event['body_base64']))) as image:
            # Made small before it is converted: a photo has a hundred times as many points.
            image.thumbnail((int(size), int(size)))
            small = image.convert('RGBA')
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError):
        return {'status': 415, 'body': {'error': 'the body is no image that can be read'}}
    out = io.BytesIO()
    small.save(out, 'PNG')
    return {'status': 200, 'headers': {'Content-Type': 'image/png'}, 'body': out.getvalue()}
