"""`from fngw_test import gateway`: the gateway that `fngw test` runs, for tests of functions. Page: bin/test.

    answer = gateway.inject('/hello', query={'name': 'Ada'})
    assert answer.status == 200 and answer.json() == {'hello': 'Ada'}
"""

import http.client
import json as _json
import os
import urllib.parse

__all__ = ['gateway', 'InjectResponse']


class InjectResponse:
    """`status`, `headers` (lower-case names; repeated ones joined by `, `), `body` (bytes), `text()`, `json()`."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def text(self):
        return self.body.decode('utf-8', 'replace')

    def json(self):
        return _json.loads(self.body)

    def __repr__(self):
        return '<InjectResponse %d %r>' % (self.status, self.text()[:200])


class _Gateway:
    @property
    def url(self):
        """Address of the gateway, such as `http://127.0.0.1:40123`."""
        url = os.environ.get('FNGW_TEST_URL')
        if not url:
            raise RuntimeError('there is no gateway: run "fngw test", or set FNGW_TEST_URL to the address of a running gateway')
        return url

    def inject(self, url, method='GET', headers=None, body=None, query=None):
        """Sends a request to the functions. A body that is neither text nor bytes is sent as JSON."""
        target = urllib.parse.urlsplit(self.url)
        if query:
            url += ('&' if '?' in url else '?') + urllib.parse.urlencode(query, doseq=True)
        sent = dict(headers or {})
        if isinstance(body, str):
            body = body.encode()
        elif body is not None and not isinstance(body, (bytes, bytearray)):
            body = _json.dumps(body).encode()
            if 'content-type' not in {name.lower() for name in sent}:
                sent['Content-Type'] = 'application/json'
        connection = http.client.HTTPConnection(target.hostname, target.port)
        try:
            connection.request(method, url, body, sent)
            answer = connection.getresponse()
            joined = {}
            for name, value in answer.getheaders():
                name = name.lower()
                joined[name] = '%s, %s' % (joined[name], value) if name in joined else value
            return InjectResponse(answer.status, joined, answer.read())
        finally:
            connection.close()


gateway = _Gateway()
