/** Handlers of the attacked tree that mean harm. */

/** What must never become a header of its own, and the headers that try it; query `h` picks one. */
export const SPLITS = [
  'a\r\nX-Split: 1',
  'a\nX-Split: 1',
  'a\rX-Split: 1',
  'a\r\n\r\nHTTP/1.1 200 OK\r\nX-Split: 1\r\n\r\n',
  'a\u0000X-Split: 1',
  '\r\nX-Split: 1',
  'a\r\n X-Split: 1',
  'a\u560d\u560aX-Split: 1',
] as const

/** One function a language that answers with a header, or a header's name, of its query; by where it stands. */
export const SPLITTING_HANDLERS: Record<string, string> = {
  'split-node/handler.js': `export const handler = ({ query }) =>
  ({ status: 200, headers: query.name ? { [query.name]: 'v' } : { 'X-Value': query.h }, body: 'ok' })\n`,
  'split-ts/handler.ts': `export const handler = ({ query }: { query: Record<string, string> }) =>
  ({ status: 200, headers: query.name ? { [query.name]: 'v' } : { 'X-Value': query.h }, body: 'ok' })\n`,
  'split-python/handler.py': `def handler(event):
    q = event["query"]
    return {"status": 200, "headers": {q["name"]: "v"} if "name" in q else {"X-Value": q["h"]}, "body": "ok"}\n`,
  'split-php/handler.php': `<?php
function handler($event) {
  $q = $event['query'];
  return ['status' => 200, 'headers' => isset($q['name']) ? [$q['name'] => 'v'] : ['X-Value' => $q['h']], 'body' => 'ok'];
}\n`,
  'split-lua/handler.lua': `function handler(event)
  local q = event.query
  return { status = 200, headers = q.name and { [q.name] = "v" } or { ["X-Value"] = q.h }, body = "ok" }
end\n`,
}

/** Writes frames to every socket of its own process: of which kind, how large and how many the query says. */
export const FLOODING_FRAMES = `import os, stat, struct

def handler(event):
    q = event["query"]
    kind, size, count, where = int(q["kind"]), int(q["size"]), int(q["count"]), q["where"]
    header = b'{"pad":"' + b"x" * (size - 10) + b'"}' if where == "header" else b"{}"
    if where == "objects":
        header = b'{"pad":[' + b"{}," * (size // 3) + b"0]}"
    body = b"x" * size if where == "body" else b""
    frame = struct.pack(">IBII", 9 + len(header) + len(body), kind, 1, len(header)) + header + body
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.set_blocking(fd, True)
                for _ in range(count):
                    view = memoryview(frame)
                    while view:
                        view = view[os.write(fd, view):]
        except OSError:
            pass
    return "flooded"
`
