import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import t from 'tap'
import { runCli } from '../helpers/cli.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(180_000)

const TREE = {
  'hello.js': '// @summary Says hello\nthrow new Error("not to be run")\n',
  'bad/get.js': '',
  'bad/schema.json': '{ "body": { "type": "x" } }',
}

t.test('[bin/openapi.1] the document of a tree, without a gateway', async t => {
  const { root, cleanup } = makeTree(TREE)
  t.teardown(cleanup)
  const { status, stdout, stderr } = runCli(['openapi', root, '--public-base-url', 'https://api.example'], {
    cwd: root,
    env: { FN_DOCS_ENABLED: '0', FN_OPENAPI_INCLUDE_INTERNAL: '1' },
  })
  t.equal(status, 0, stderr)
  const document = JSON.parse(stdout)
  t.match(document, { openapi: '3.1.0', servers: [{ url: 'https://api.example' }] })
  t.equal(document.paths['/hello'].get.summary, 'GET Says hello')
  t.ok(document.paths['/_fn/health'])
  t.match(stderr, /CONFIG_VALUE: bad\/schema\.json: body\.type must be one of/)
  t.notMatch(stderr, /not to be run/)
})

t.test('[bin/openapi.2] the document as a file', async t => {
  const { root, path, cleanup } = makeTree({ 'tree/hello.js': '', 'old.json': 'old', 'folder/': '' })
  t.teardown(cleanup)
  const run = (out: string) => runCli(['openapi', 'tree', '--out', out], { cwd: root })
  for (const name of ['old.json', 'new.json']) {
    const { status, stdout, stderr } = run(name)
    t.match([status, stdout, stderr], [0, '', ''], name)
    t.ok(JSON.parse(readFileSync(path(name), 'utf8')).paths['/hello'], name)
  }
  t.equal(run('/dev/null').status, 0, 'a device is written to')
  t.equal(statSync('/dev/null').isFile(), false)
  for (const name of ['missing/x.json', 'folder']) {
    const { status, stderr } = run(name)
    t.equal(status, 1, name)
    t.match(stderr, new RegExp(`--out ${name} cannot be written: E`))
  }
  t.same(
    readdirSync(root).filter(name => name.endsWith('.tmp')),
    [],
    'nothing is left behind',
  )
  t.notOk(existsSync(path('missing')))
})
