"""What a spare process runs once before it has a function (practise.py)."""


def handler(event):
    return {'status': 200, 'headers': {'Content-Type': 'application/json'}, 'body': {'name': event.get('query')}}
