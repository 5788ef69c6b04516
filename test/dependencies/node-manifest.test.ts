import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { makeNodeManifest, NodeManifest, readNodeManifest } from '../../lib/dependencies/node-manifest.ts'

t.test('[dependencies/node.5] what is missing is appended: order, ranges, indentation and line ends stay', async t => {
  const text =
    '{\r\n\t"name": "x",\r\n\t"dependencies": {\r\n\t\t"b": "1.0.0",\r\n\t\t"a": "^2"\r\n\t},\r\n\t"z": [1]\r\n}'
  const appended = new NodeManifest(text, 'package.json').append({ c: '^3.0.0' })
  t.equal(
    appended,
    '{\r\n\t"name": "x",\r\n\t"dependencies": {\r\n\t\t"b": "1.0.0",\r\n\t\t"a": "^2",\r\n\t\t"c": "^3.0.0"\r\n\t},\r\n\t"z": [1]\r\n}',
  )
  t.equal(new NodeManifest('\uFEFF{"a":1}\n', 'p').append({ c: '1' }), '{"a":1,"dependencies": {\n    "c": "1"\n  }}\n')
  const made = makeNodeManifest('users/[id]', { c: '^1.0.0' })
  t.match(JSON.parse(made), { name: 'fn-users-id', private: true, dependencies: { c: '^1.0.0' } })
  t.equal(new NodeManifest(made, 'p').isGenerated, true)
  t.equal(new NodeManifest('{}', 'p').isGenerated, false)
})

t.test(
  '[dependencies/node.6] npm gets of a manifest what decides about packages, and nothing it could run',
  async t => {
    const json = {
      name: 'x',
      scripts: { preinstall: 'touch /tmp/x' },
      workspaces: ['*'],
      config: { a: 1 },
      dependencies: { a: '1' },
      devDependencies: { d: '1' },
      overrides: { e: '2' },
    }
    t.same(new NodeManifest(JSON.stringify(json), 'p').toStaged({ b: '*' }), {
      name: 'fngw-function',
      private: true,
      dependencies: { a: '1', b: '*' },
      devDependencies: { d: '1' },
      overrides: { e: '2' },
    })
  },
)

t.test('[dependencies/node.7] a manifest that cannot be used is told with file and line', async t => {
  const cases: [string, RegExp, number][] = [
    ['{\n "dependencies": {\n  "a": }\n}', /^install failed: f\/package\.json:\d: is not JSON: /, 3],
    ['[]', /f\/package\.json: must be a JSON object/, 1],
    [
      '{\n "dependencies": ["a"]\n}',
      /f\/package\.json:2: dependencies must be an object of names and version ranges, got a list/,
      2,
    ],
    ['', /is not JSON/, 1],
  ]
  for (const [text, message, line] of cases) {
    t.match(
      caught(() => new NodeManifest(text, 'f/package.json')),
      { message, detail: { file: 'f/package.json', line } },
      text,
    )
  }
  const root = t.testdir({ big: {}, none: {} })
  writeFileSync(join(root, 'big/package.json'), ' '.repeat(8 * 1024 * 1024 + 1))
  t.throws(() => readNodeManifest(join(root, 'big'), 'big'), { message: /big\/package\.json has \d+ bytes/ })
  mkdirSync(join(root, 'package.json'))
  t.throws(() => readNodeManifest(root, '.'), { message: /package\.json is not a regular file/ })
  t.equal(readNodeManifest(join(root, 'none'), 'none'), null)
})

function caught(work: () => unknown): unknown {
  try {
    return work()
  } catch (error) {
    return error
  }
}

t.test('[dependencies/node.7] the name and the version of a manifest are read as they are', t => {
  const manifest = new NodeManifest('{"name":"a","version":"1.0.0"}', 'f/package.json')
  t.same([manifest.json.name, manifest.json.version, manifest.isGenerated], ['a', '1.0.0', false])
  t.end()
})
