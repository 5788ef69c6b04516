import { spawn } from 'node:child_process'
import { existsSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { type SnippetRequest, toCurl, toFetch, toPython } from '../../console/pages/try/snippets.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(120_000)

/** What a server was asked. */
interface Asked {
  method: string
  url: string
  headers: Record<string, string | string[] | undefined>
  body: Buffer
}

const HOSTILE = [
  `it's "quoted" \`id\` $(id) \${HOME} $HOME !! \\ \\n %s %% ; & | > /tmp/x`,
  `'; touch owned; echo '`,
  `"; import os; os.system("touch owned") #`,
  '\u001b[31m\u0007\tkeys\u0008 and \r\n lines\n\nmore',
  '\u202eturned\u2066 \u200bwidthless\u2028line\ufeff',
  'ünïcödé 漢字 😀 \u0080\u009b',
  '@/etc/passwd',
  '-d @/etc/passwd',
  '<script>alert(1)</script></script>',
  "\0zero\0 with ' and \\ and % and 😀",
  "!bang\u001b'!\\",
  '-n starts with a dash\0',
  '',
] as const

/** Runs a program in a folder of its own and waits for its end. */
function run(program: string, args: string[], cwd: string, env: Record<string, string> = {}): Promise<string> {
  const child = spawn(program, args, { cwd, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  let out = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', piece => (out += String(piece)))
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', code => (code === 0 ? resolve(out) : reject(new Error(`${program} ended with ${code}: ${out}`))))
  })
}

async function startServer(): Promise<{ server: Server; url: string; asked: Asked[] }> {
  const asked: Asked[] = []
  const server = createServer((request, response) => {
    const pieces: Buffer[] = []
    request.on('data', piece => pieces.push(piece))
    request.on('end', () => {
      const { method = '', url = '', headers } = request
      asked.push({ method, url, headers, body: Buffer.concat(pieces) })
      response.end('ok')
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked }
}

/** A stand-in for the package `requests`: takes the arguments that it takes, and sends them with what Python has. */
const REQUESTS = `
import http.client, json, os, urllib.parse
class Answer:
    status_code = 200
    text = 'ok'
def request(method, url, headers=None, data=None, files=None):
    parts = urllib.parse.urlsplit(url)
    if files is not None:
        body = json.dumps([[list(pair) for pair in data or []], [[n, f[0], f[1].read().decode(), *f[2:]] for n, f in files]]).encode()
    elif isinstance(data, list):
        body = urllib.parse.urlencode(data).encode()
    elif hasattr(data, 'read'):
        body = data.read()
    else:
        body = data
    assert body is None or isinstance(body, bytes), type(body)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request(method, parts.path + ('?' + parts.query if parts.query else ''), body, headers or {})
    connection.getresponse().read()
    return Answer()
`

const WAYS = {
  curl: (request: SnippetRequest, cwd: string) => run('bash', ['-c', toCurl(request)], cwd),
  fetch: (request: SnippetRequest, cwd: string) => {
    writeFileSync(join(cwd, 'snippet.mjs'), toFetch(request))
    return run(process.execPath, ['snippet.mjs'], cwd)
  },
  python: (request: SnippetRequest, cwd: string) => {
    writeFileSync(join(cwd, 'snippet.py'), toPython(request))
    return run('python3', ['snippet.py'], cwd, { PYTHONPATH: cwd, PYTHONDONTWRITEBYTECODE: '1' })
  },
}

for (const [way, send] of Object.entries(WAYS)) {
  t.test(`[console/try.6] ${way} sends what was built, whatever is in it, and does nothing else`, async t => {
    const { server, url, asked } = await startServer()
    const tree = makeTree({ 'requests.py': REQUESTS })
    t.teardown(() => {
      server.close()
      tree.cleanup()
    })
    for (const [index, text] of HOSTILE.entries()) {
      const target = new URL(`${url}/a'b/[x]{y}`)
      target.searchParams.set('q', text)
      const value = text.replace(/[^\x20-\x7e]/g, '').trim()
      const headers = [
        ['Content-Type', 'application/json'],
        ['X-Value', value === '' ? 'x' : value],
      ] as const
      await send({ method: 'PUT', url: target.href, headers, body: { kind: 'text', text } }, tree.root)
      const last = asked.at(-1)!
      t.equal(asked.length, index + 1, `one request for text ${index + 1}`)
      t.equal(last.method, 'PUT')
      t.equal(new URL(last.url, url).searchParams.get('q'), text.replace(/\p{Surrogate}/gu, '\ufffd'))
      t.equal(last.headers['content-type'], 'application/json')
      t.equal(last.headers['x-value'], headers[1][1])
      t.equal(last.body.toString(), text)
    }
    t.notOk(existsSync(tree.path('owned')), 'no command in a text was run')
    await send({ method: 'GET', url: `${url}/plain`, headers: [['X-Empty', '']], body: null }, tree.root)
    t.match(asked.at(-1), { method: 'GET', url: '/plain', headers: { 'x-empty': '' } })
    t.equal(asked.at(-1)!.body.length, 0)
  })

  t.test(`[console/try.6] ${way} sends files and forms`, async t => {
    const { server, url, asked } = await startServer()
    const name = 'it\'s "one" $(id).txt'
    const tree = makeTree({ 'requests.py': REQUESTS, [name]: 'of the file' })
    t.teardown(() => {
      server.close()
      tree.cleanup()
    })
    const common = { method: 'POST', url: `${url}/form`, headers: [] }
    await send({ ...common, body: { kind: 'file', name } }, tree.root)
    t.equal(asked.at(-1)!.body.toString(), 'of the file')
    const field = { name: 'a&b', value: 'c=d ü\n', file: null }
    const type = ['Content-Type', 'application/x-www-form-urlencoded'] as const
    await send({ ...common, headers: [type], body: { kind: 'form', fields: [field, field] } }, tree.root)
    t.same(
      [...new URLSearchParams(asked.at(-1)!.body.toString())],
      [
        ['a&b', 'c=d ü\n'],
        ['a&b', 'c=d ü\n'],
      ],
    )
    const file = { name: 'upload', value: '', file: { name, type: 'text/csv' } }
    await send({ ...common, body: { kind: 'form', fields: [field, file] } }, tree.root)
    const body = asked.at(-1)!.body.toString()
    t.match(body, 'of the file')
    t.match(body, 'c=d')
    t.match(body, 'text/csv')
  })
}
