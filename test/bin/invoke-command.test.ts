import { Readable, Writable } from 'node:stream'
import t from 'tap'
import { ApiClient } from '../../bin/api-client.ts'
import { type InvokeCommandFlags, runInvoke } from '../../bin/invoke-command.ts'
import { createOutput } from '../../bin/output.ts'
import { serveTree } from '../helpers/gateway-bed.ts'
import { makeTree } from '../helpers/tree.ts'

const TREE = {
  'echo.js':
    'exports.handler = e => { console.log("said \\u001b[2J"); return { status: 200, headers: { "X-A": "a" }, body: e.path + " " + e.context.user?.n } }\n',
  'users/[id].js': 'exports.handler = (e, { id }) => ({ status: 200, body: id })\n',
  'bytes.js': 'exports.handler = () => ({ status: 200, body: Buffer.from([255, 0]) })\n',
  'gone.js': 'exports.handler = () => ({ status: 404, body: "no such thing\\u001b[2J" })\n',
  'throws.js': 'exports.handler = () => { throw new TypeError("broken here") }\n',
  'fn.config.json': '{ "timeout_ms": 20000 }',
}

/** Streams that keep what is written, as a pipe or as a terminal. */
function makeOutput(isTTY: boolean) {
  const chunks: Buffer[][] = [[], []]
  const [stdout, stderr] = chunks.map(list =>
    Object.assign(
      new Writable({
        write(chunk, _encoding, done) {
          list.push(Buffer.from(chunk))
          done()
        },
      }),
      { isTTY },
    ),
  ) as unknown as [NodeJS.WriteStream, NodeJS.WriteStream]
  return {
    output: createOutput(stdout, stderr, { NO_COLOR: '1' }),
    out: () => Buffer.concat(chunks[0]!),
    err: () => Buffer.concat(chunks[1]!).toString(),
  }
}

async function run(target: { url: string } | { root: string }, name: string, flags: InvokeCommandFlags, isTTY = false) {
  const { output, out, err } = makeOutput(isTTY)
  const outcome = await runInvoke(
    name,
    { ...flags, local: 'root' in target },
    {
      output,
      stdin: Readable.from([]),
      api: () => {
        if ('url' in target) return new ApiClient({ url: target.url, token: null })
        throw new Error('no address matters')
      },
      gateway: { functionsRoot: 'root' in target ? target.root : '', runtimes: ['node'], env: process.env },
    },
  ).catch((error: unknown) => error as Error)
  return { outcome, stdout: out().toString('latin1'), stderr: err() }
}

t.test('[bin/invoke.1, bin/invoke.4, bin/invoke.5] the running gateway and one of its own answer alike', async t => {
  const { url, tree } = await serveTree(t, TREE, { runtimes: ['node'] })
  for (const target of [{ url }, { root: tree.root }]) {
    const name = JSON.stringify(target)
    const plain = await run(target, 'echo', { context: '{"n":7}' })
    t.match(plain, { outcome: 0, stdout: '/echo 7', stderr: '[stdout] said \\x1b[2J\n' }, name)
    const shown = await run(target, 'echo', { include: true })
    t.match(shown.stderr, /\n200 OK\nx-a: a\n/, name)
    t.equal((await run(target, 'users/[id]', { route: '/users/:id', param: ['id=7'] })).stdout, '7')
    t.match(await run(target, 'bytes', {}), { outcome: 0, stdout: '\u00ff\0' })
    t.match(await run(target, 'gone', {}), { outcome: 1, stdout: /^no such thing/, stderr: '404 Not Found\n' })
    const json = JSON.parse((await run(target, 'bytes', { json: true })).stdout)
    t.match(json, { status: 200, route: '/bytes', is_base64: true, body_base64: '/wA=' })
    t.match((await run(target, 'throws', {})).outcome, { exitCode: 1, message: /500: .*broken here/ }, name)
    t.match((await run(target, 'ech', {})).outcome, {
      message: /404: unknown function or version: did you mean echo\?$/,
    })
    t.match((await run(target, 'echo', { version: 'v9' })).outcome, { message: /: its versions: default$/ }, name)
    t.match(
      (await run(target, 'nothing', {})).outcome,
      { message: /: there are bytes, echo, gone, throws, users/ },
      name,
    )
    t.match((await run(target, 'echo', { method: 'PUT' })).outcome, { message: /405: method not allowed/ }, name)
    t.match(
      (await run(target, 'echo', { method: 'FETCH' })).outcome,
      { message: /400: method must be one of GET/ },
      name,
    )
  }
})

t.test('[bin/invoke.4] a terminal gets no control characters and no bytes that are no text', async t => {
  const { url } = await serveTree(t, TREE, { runtimes: ['node'] })
  t.equal((await run({ url }, 'gone', {}, true)).stdout, 'no such thing\\x1b[2J\n')
  const bytes = await run({ url }, 'bytes', {}, true)
  t.match(bytes, { outcome: 0, stdout: '', stderr: /2 bytes that are no text: write them to a file with > FILE/ })
})

t.test('[bin/invoke.5] without a gateway the command says how to do without', async t => {
  const nobody = await run({ url: 'http://127.0.0.1:1' }, 'echo', {})
  t.match(nobody.outcome, { exitCode: 1, message: /^no gateway answers at .*; --local runs the function without one$/ })
  const empty = makeTree({ 'a.txt': '' })
  t.teardown(empty.cleanup)
  t.match((await run({ root: empty.root }, 'echo', {})).outcome, { message: /404: .*there are no functions here/ })
})
