"""A job: sends a message to the chat service. An exception makes the gateway run the job again."""

import json
import urllib.request


def handler(event):
    trigger = event["context"]["trigger"]
    print(f"attempt {trigger['attempt']} of {trigger['max_attempts']}")
    message = event["body"].encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(event["env"]["CHAT_URL"], message, headers)
    # Raises for a status of 400 or more, a timeout, and a service that is down.
    with urllib.request.urlopen(request, timeout=5) as response:
        response.read()
    return {"sent": json.loads(message)["id"]}
