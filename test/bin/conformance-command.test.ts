import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type ConformanceFlags, runConformance } from '../../bin/conformance-command.ts'
import type { Output } from '../../bin/output.ts'
import { CASES } from '../../conformance/cases.ts'
import { createGateway } from '../../lib/index.ts'

t.setTimeout(180_000)

/** What the command ends with and prints. */
async function conformance(url: string | undefined, flags: ConformanceFlags) {
  const lines: string[] = []
  const noted: string[] = []
  const output = {
    result: (line: string) => lines.push(line),
    note: (line: string) => noted.push(line),
    clean: (text: string) => text,
  } as unknown as Output
  return { code: await runConformance(url, flags, output), lines, noted: noted.join('\n') }
}

function folder(t: Test): string {
  const path = mkdtempSync(join(tmpdir(), 'fngw-conformance-'))
  t.teardown(() => rmSync(path, { recursive: true, force: true }))
  return path
}

async function serve(t: Test, answer: RequestListener): Promise<string> {
  const server = createServer(answer)
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** Points by their beginning; the numbers must go up by one, and the plan and the totals must fit. */
function read(t: Test, lines: readonly string[]) {
  t.equal(lines[0], 'TAP version 14')
  const points = lines.filter(line => /^(not )?ok /.test(line))
  t.same(
    points.map(line => Number(/\d+/.exec(line)![0])),
    points.map((_, i) => i + 1),
  )
  t.equal(lines.at(-2), `1..${points.length}`)
  const skip = points.filter(line => / # SKIP /.test(line)).length
  const fail = points.filter(line => line.startsWith('not ')).length
  const pass = points.length - skip - fail
  const parts = { total: points.length, pass, ...(skip > 0 && { skip }), ...(fail > 0 && { fail }) }
  t.equal(
    lines.at(-1),
    `# { ${Object.entries(parts)
      .map(([name, count]) => `${name}: ${count}`)
      .join(', ')} }`,
  )
  return { points, skip, fail, pass }
}

t.test(
  '[bin/conformance.1, bin/conformance.2, bin/conformance.4] the gateway serves the tree that is written, and holds',
  async t => {
    const root = join(folder(t), 'tree')
    const written = await conformance(undefined, { write: root, languages: 'lua5' })
    t.match([written.code, written.lines.length, written.noted], [0, 0, /^\d+ files are in .*tree: /])
    t.same(readdirSync(root), ['lua5'])
    const gateway = await createGateway({ functionsRoot: root, runtimes: ['lua'], workerMemoryMb: 128 })
    t.teardown(() => gateway.close({ timeoutMs: 1000 }))
    const { url } = await gateway.listen({ port: 0 })
    const { code, lines, noted } = await conformance(url, { languages: 'lua5,golang' })
    const { points, skip, fail } = read(t, lines)
    t.same(
      lines.filter(line => /^(not ok| {2})/.test(line)),
      [],
    )
    t.same([fail, code, noted], [0, 0, ''])
    t.equal(points.length, CASES.length * 2, 'a point for each case and language')
    const unserved = points.filter(line => / \(golang\) # SKIP not served: \/golang\/all answers 404$/.test(line))
    t.equal(unserved.length, CASES.length)
    t.equal(skip, unserved.length)
    t.ok(
      points.every(line => /^ok \d+ - \[[\w/-]+\.\d+[\],]/.test(line)),
      'each names its statements',
    )
  },
)

t.test(
  '[bin/conformance.3, bin/conformance.4] a server that does not hold: what was found and wanted, exit code 1',
  async t => {
    // It forges lines of TAP, and gives up in the middle.
    let asked = 0
    const url = await serve(t, (req, res) => {
      asked += 1
      if (asked > 60) req.socket.destroy()
      else res.end('# fine\nok 1000 - forged\n')
    })
    const { code, lines } = await conformance(url, { languages: 'lua5' })
    const { fail, skip } = read(t, lines)
    t.equal(code, 1)
    t.ok(fail >= CASES.length - 2, `${fail} of ${CASES.length} fail`)
    t.equal(skip, 0)
    const text = lines.join('\n')
    t.match(
      text,
      / {2}---\n {2}failed: \d+ of \d+ checks\n {2}checks:\n {4}- check: ".*"\n {6}found: ".*"\n {6}wanted: "/,
    )
    t.match(text, /found: "(socket hang up|read ECONNRESET)"/)
    t.notMatch(text, /^ok 1000/m)
  },
)

t.test('[bin/conformance.4] a server without the tree, none at all, and wrong usage', async t => {
  const url = await serve(t, (_req, res) => void res.writeHead(404).end())
  const empty = await conformance(url, { languages: 'js,lua5' })
  const { skip, points } = read(t, empty.lines)
  t.same([empty.code, skip], [1, points.length])
  t.match(empty.noted, /serves no function of the tree.*--write DIR/)

  const gone = createServer()
  await new Promise<void>(done => gone.listen(0, '127.0.0.1', done))
  const { port } = gone.address() as AddressInfo
  await new Promise(done => gone.close(done))
  const nobody = { exitCode: 1, message: new RegExp(`^no response from http://127.0.0.1:${port}: .*ECONNREFUSED`) }
  await t.rejects(conformance(`http://127.0.0.1:${port}`, {}), nobody)

  await t.rejects(conformance(undefined, {}), { exitCode: 2, message: /--write DIR/ })
  for (const address of ['nonsense', 'ftp://a', 'http://a/path', 'http://me@a', 'http://a?x'])
    await t.rejects(conformance(address, {}), { exitCode: 2, message: /^the server must be an address/ }, address)
  await t.rejects(conformance(url, { languages: 'js,cobol' }), { exitCode: 2, message: /js, cjs.*"cobol"/ })
})

t.test('[bin/conformance.1] nothing of anybody is overwritten', async t => {
  const full = folder(t)
  writeFileSync(join(full, 'mine.txt'), '')
  await t.rejects(conformance(undefined, { write: full }), { exitCode: 2, message: /must name an empty folder/ })
  t.same(readdirSync(full), ['mine.txt'])
  const file = join(full, 'mine.txt')
  await t.rejects(conformance(undefined, { write: file }), { exitCode: 1, message: /^the tree cannot be written: / })
  t.ok(existsSync(file))
})

t.test('[bin/conformance.1] the tree is the same below a project of CommonJS, as npm init makes them', async t => {
  const project = folder(t)
  writeFileSync(join(project, 'package.json'), '{ "type": "commonjs" }')
  const root = join(project, 'tree')
  await conformance(undefined, { write: root, languages: 'js,cjs,ts' })
  const gateway = await createGateway({ functionsRoot: root, runtimes: ['node'] })
  t.teardown(() => gateway.close({ timeoutMs: 1000 }))
  for (const language of ['js', 'cjs', 'ts']) {
    const { status, body } = await gateway.inject({
      method: 'POST',
      url: `/${language}/all`,
      headers: { 'x-do': 'return', 'content-type': 'application/json' },
      body: '"hi"',
    })
    t.same([status, body.toString()], [200, '"hi"'], language)
  }
})
