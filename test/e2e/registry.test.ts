/**
 * Packages from the registries of all languages, through a gateway: `npm run test:registry`. Other runs leave these tests out, so
 * that the suite needs no network.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import t, { type Test } from 'tap'
import { missingToolchain, shareCrates } from '../helpers/compiled.ts'
import { type GatewayBed, serveTree } from '../helpers/gateway-bed.ts'
import { makeTree } from '../helpers/tree.ts'

t.setTimeout(1_200_000)

const EXAMPLES = fileURLToPath(new URL('../../examples/functions', import.meta.url))
/** Milliseconds that one answer may take: a download and a build of everything a function needs. */
const ANSWER_MS = 280_000
const skip =
  process.env.FNGW_TEST_REGISTRY === '1' ? false : 'packages come from the registries: npm run test:registry runs these'
const without = (runtime: 'go' | 'rust') => skip || (missingToolchain(runtime) ?? false)

type Options = NonNullable<Parameters<typeof serveTree>[2]>

function serve(t: Test, entries: Parameters<typeof serveTree>[1], options: Options = {}): Promise<GatewayBed> {
  return serveTree(t, entries, { logLevel: 'silent', hotReload: false, depsWaitMs: ANSWER_MS, ...options })
}

/** Serves a copy of an example. */
async function serveExample(t: Test, name: string): Promise<GatewayBed> {
  const text = readFileSync(join(EXAMPLES, name, 'README.md'), 'utf8')
  t.match(text, new RegExp(`fngw dev examples/functions/${name}`))
  const bed = await serve(t, {})
  cpSync(join(EXAMPLES, name), bed.tree.root, { recursive: true, filter: file => !file.includes('node_modules') })
  await bed.gateway.reload()
  t.same(bed.gateway.warnings, [], `${name} has no warnings`)
  return bed
}

const ask = (bed: GatewayBed, path: string, init: RequestInit = {}) =>
  fetch(bed.url + path, { signal: AbortSignal.timeout(ANSWER_MS), ...init })
const answerOf = async (bed: GatewayBed, path: string) => (await ask(bed, path)).json()
const lines = (bed: GatewayBed, path: string) => readFileSync(bed.tree.path(path), 'utf8').split('\n')

t.test(
  '[gateway/gateway.2, dependencies/python.1] python-thumbnail makes images small with Pillow',
  { skip },
  async t => {
    const bed = await serveExample(t, 'python-thumbnail')
    // A bitmap of 80 x 40 points, all of one colour: no browser's PNG, which the handler makes of it.
    const bitmap = Buffer.alloc(54 + 80 * 40 * 3, 0x7f)
    bitmap.write('BM', 0)
    for (const [at, value] of [
      [2, bitmap.length],
      [6, 0],
      [10, 54],
      [14, 40],
      [18, 80],
      [22, 40],
    ] as const)
      bitmap.writeUInt32LE(value, at)
    bitmap.writeUInt16LE(1, 26)
    bitmap.writeUInt16LE(24, 28)
    bitmap.fill(0, 30, 54)
    const small = await ask(bed, '/thumbnail?size=20', { method: 'POST', body: bitmap })
    t.match([small.status, small.headers.get('content-type')], [200, 'image/png'])
    const png = Buffer.from(await small.arrayBuffer())
    t.same([png.readUInt32BE(16), png.readUInt32BE(20)], [20, 10])
    const none = await ask(bed, '/thumbnail', { method: 'POST', body: Buffer.from([0xff, 0xfe, 0]) })
    t.equal(none.status, 415)
    t.equal((await ask(bed, '/thumbnail?size=9999', { method: 'POST', body: bitmap })).status, 400)
  },
)

t.test('[gateway/gateway.2, dependencies/node.13] node-qr draws codes with a package of npm', { skip }, async t => {
  const bed = await serveExample(t, 'node-qr')
  const code = await ask(bed, '/qr?text=https%3A%2F%2Fexample.com')
  t.match([code.status, code.headers.get('content-type')], [200, /^image\/svg\+xml/])
  t.match(await code.text(), /^<svg [\s\S]*<\/svg>$/)
  t.equal((await ask(bed, '/qr')).status, 400)
  t.match(JSON.parse(readFileSync(bed.tree.path('qr/package-lock.json'), 'utf8')), {
    packages: { 'node_modules/qrcode-generator': { version: /^2\./ } },
  })
})

t.test(
  '[dependencies/python.5, dependencies/python.12] requests comes from its import, and in two versions side by side',
  { skip },
  async t => {
    const handler = 'import requests\ndef handler(event):\n    return {"version": requests.__version__}\n'
    const bed = await serve(
      t,
      {
        'inferred/handler.py': handler,
        'old/handler.py': `#@requirements requests==2.31.0\n${handler}`,
        'new/handler.py': handler,
        'new/requirements.txt': 'requests==2.32.3\n',
        'wrong/handler.py': '\n#@requirements requests==0.0.0.1\n',
      },
      { runtimes: ['python'] },
    )
    const [inferred, old, fresh, wrong] = await Promise.all(
      ['inferred', 'old', 'new', 'wrong'].map(name => answerOf(bed, `/${name}`)),
    )
    t.match(inferred, { version: /^2\.\d+/ })
    t.same([old, fresh], [{ version: '2.31.0' }, { version: '2.32.3' }])
    t.same(lines(bed, 'inferred/requirements.txt').slice(1), ['requests', ''], 'the import is written down')
    t.match(wrong, { error: /^install failed: wrong\/handler\.py:2: .*requests==0\.0\.0\.1/ })
  },
)

t.test(
  '[dependencies/node.5, dependencies/node.14] lodash comes from its import, and in two versions side by side',
  { skip },
  async t => {
    const handler = "const { VERSION } = require('lodash')\nexports.handler = () => ({ version: VERSION })\n"
    const bed = await serve(
      t,
      {
        'inferred/handler.js': handler,
        'old/handler.js': handler,
        'old/package.json': '{ "dependencies": { "lodash": "3.10.1" } }',
        'new/handler.js': handler,
        'new/package.json': '{ "dependencies": { "lodash": "4.17.21" } }',
        'wrong/handler.js': "\nrequire('lodash')\n",
        'wrong/package.json': '{ "dependencies": { "lodash": "999.0.0" } }',
      },
      { runtimes: ['node'] },
    )
    const [inferred, old, fresh, wrong] = await Promise.all(
      ['inferred', 'old', 'new', 'wrong'].map(name => answerOf(bed, `/${name}`)),
    )
    t.match(inferred, { version: /^\d+\./ })
    t.same([old, fresh], [{ version: '3.10.1' }, { version: '4.17.21' }])
    t.match(JSON.parse(readFileSync(bed.tree.path('inferred/package.json'), 'utf8')), {
      dependencies: { lodash: /^\^\d/ },
    })
    t.match(wrong, { error: /^install failed: .*lodash/ })
  },
)

t.test(
  '[dependencies/resolve.4] a go module of the proxy, in two versions side by side',
  { skip: without('go') },
  async t => {
    const name = 'github.com/google/uuid'
    const handler = `package main

import (
	"runtime/debug"

	"${name}"
)

func handler(event map[string]any) map[string]any {
	id := uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	body := map[string]any{"id": id.Version().String()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, one := range info.Deps {
			body[one.Path] = one.Version
		}
	}
	return map[string]any{"status": 200, "body": body}
}
`
    const module = (version: string) => `module shop\n\ngo 1.19\n\nrequire ${name} ${version}\n`
    const tree = makeTree({
      'old/handler.go': handler,
      'old/go.mod': module('v1.3.0'),
      'new/handler.go': handler,
      'new/go.mod': module('v1.6.0'),
    })
    t.teardown(tree.cleanup)
    // Sums are the author's to make: go wants them beside the versions.
    for (const folder of ['old', 'new']) execFileSync('go', ['mod', 'tidy'], { cwd: tree.path(folder), stdio: 'pipe' })
    const served = await serve(t, {}, { runtimes: ['go'], functionsRoot: tree.root })
    const answers = await Promise.all(['old', 'new'].map(folder => answerOf(served, `/${folder}`)))
    t.same(answers, [
      { id: 'VERSION_1', [name]: 'v1.3.0' },
      { id: 'VERSION_1', [name]: 'v1.6.0' },
    ])
  },
)

t.test(
  '[dependencies/resolve.4] serde and other crates, in two versions side by side',
  { skip: without('rust') },
  async t => {
    const manifest = (hex: string) =>
      `[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\nhex = "${hex}"\nserde = { version = "1", features = ["derive"] }\nserde_json = "1"\n`
    const handler = (encode: string) => `use serde::Serialize;
use serde_json::{json, Value};

#[derive(Serialize)]
struct Answer {
    hex: String,
}

pub fn handler(_event: Value) -> Value {
    ${encode}
    json!({ "status": 200, "body": Answer { hex } })
}
`
    const bed = await serve(
      t,
      {
        'old/handler.rs': handler(
          'let mut hex = String::new(); hex::ToHex::write_hex(&[1u8, 255], &mut hex).unwrap();',
        ),
        'old/Cargo.toml': manifest('=0.3.2'),
        // A function that 0.3 does not have.
        'new/handler.rs': handler(
          'let mut bytes = [0u8; 4]; hex::encode_to_slice([1u8, 255], &mut bytes).unwrap(); let hex = String::from_utf8(bytes.to_vec()).unwrap();',
        ),
        'new/Cargo.toml': manifest('=0.4.3'),
      },
      { runtimes: ['rust'], env: { ...process.env, ...shareCrates() } },
    )
    const answers = await Promise.all(['old', 'new'].map(folder => answerOf(bed, `/${folder}`)))
    t.same(answers, [{ hex: '01ff' }, { hex: '01ff' }])
  },
)

/** The interpreter of a fresh environment with pipreqs in it; why there is none when pipreqs does not know this Python. */
function makePipreqs(t: Test): string | null {
  const tree = makeTree()
  t.teardown(tree.cleanup)
  // With the packages of the interpreter's own: pip is one of them.
  const options = { stdio: 'pipe', encoding: 'utf8' } as const
  execFileSync('python3', ['-m', 'venv', '--without-pip', '--system-site-packages', tree.path('venv')], options)
  const python = tree.path('venv/bin/python3')
  const minor = execFileSync(python, ['-c', 'import sys; print(sys.version_info[1])'], options)
  if (Number(minor) > 12) return null
  execFileSync(python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', 'pipreqs'], options)
  return python
}

t.test('[dependencies/python.14] the real pipreqs knows what a module is called otherwise', { skip }, async t => {
  const python = makePipreqs(t)
  if (python === null) return t.comment('pipreqs does not run in this version of Python')
  const bed = await serve(
    t,
    { 'a/handler.py': 'import yaml\n\ndef handler(event):\n    return yaml.safe_load("a: [1, 2]")\n' },
    { runtimes: ['python'], binaries: { python }, pyInferBackend: 'pipreqs' },
  )
  t.same(await answerOf(bed, '/a'), { a: [1, 2] })
  t.same(lines(bed, 'a/requirements.txt').slice(1), ['pyyaml', ''])
  t.ok(existsSync(bed.tree.path('a/.deps/yaml')))
})
