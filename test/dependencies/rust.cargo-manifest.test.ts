import t from 'tap'
import { packageNameOf, parseTables, toManifest } from '../../lib/dependencies/rust.ts'

const options = {
  id: 'abc',
  entryPath: '/srv/f/handler.rs',
  fnDir: '/srv/f',
  workerFolder: '/pkg/"w"',
  pins: {},
}

t.test('[dependencies/resolve.4] a manifest of our own has the handler, the worker and serde_json', async t => {
  t.equal(
    toManifest(null, { ...options, pins: { itoa: '1' } }),
    `[package]
name = "handler"
version = "0.0.0"
edition = "2021"
autobins = false
autoexamples = false
autotests = false
autobenches = false

[dependencies]
serde_json = "1"
itoa = "1"
fngw_worker = { path = "/pkg/\\"w\\"" }

[profile.release]
strip = true

[lib]
name = "handler_abc"
path = "/srv/f/handler.rs"

[[bin]]
name = "fn_abc"
path = "src/main.rs"

[workspace]
`,
  )
})

t.test("[dependencies/resolve.4] the user's tables stay as they are, but for targets and relative paths", async t => {
  const user = `\uFEFF# text
[package] # mine
name = "mine"
version = '2.0.0'
authors = ["a [b]",
  # ]
  "c"]
description = """
[lib]
"""
workspace = ".."
build = "build.rs"

[ dependencies ]
serde_json = { version = "1.0.100", features = [
  "preserve_order",
] }
near = { path = "../near" }
far = { path = '/abs/far' }

[dependencies."dotted.name"]
path = "inner"

[target.'cfg(unix)'.dependencies]
libc = "0.2"

[patch.crates-io]
itoa = { path = "itoa" }

[dev-dependencies]
tokio = "1"

[workspace.package]
edition = "2018"

[[bin]]
name = "x"

[profile.release]
lto = true
`.replace(/\n/g, '\r\n')
  const made = toManifest(user, { ...options, pins: { itoa: '1' } })
  for (const text of [
    'authors = ["a [b]",\n  # ]\n  "c"]',
    'description = """\n[lib]\n"""',
    'near = { path = "/srv/near" }',
    "far = { path = '/abs/far' }",
    'path = "/srv/f/inner"',
    '[target.\'cfg(unix)\'.dependencies]\nlibc = "0.2"',
    'itoa = { path = "/srv/f/itoa" }',
    'lto = true',
    'edition = "2021"',
  ]) {
    t.ok(made.includes(text), text)
  }
  t.notMatch(made, /tokio|workspace = |build\.rs|name = "x"|strip|2018|itoa = "1"/)
  t.equal(made.match(/^serde_json/gm)?.length, 1)
  t.same(
    parseTables(user).map(({ name }) => name),
    [
      '',
      'package',
      'dependencies',
      'dependencies.dotted.name',
      'target.cfg(unix).dependencies',
      'patch.crates-io',
      'dev-dependencies',
      'workspace.package',
      'bin',
      'profile.release',
    ],
  )
})

t.test('[dependencies/resolve.4] any text gives an answer in time that grows with its length', async t => {
  for (const text of [
    '',
    '[',
    ']]',
    'a = [',
    'a = """',
    'a = "\\',
    '[a',
    '= [',
    'a.b = {'.repeat(500),
    `a = [${'[\n'.repeat(20_000)}`,
  ]) {
    // Its own work: others on the machine do not count.
    const started = process.cpuUsage()
    t.type(toManifest(text, options), 'string')
    t.ok(process.cpuUsage(started).user < 2_000_000)
  }
})

t.test('[dependencies/resolve.19] the name of a package, as far as it can be read', async t => {
  for (const [text, name] of [
    [toManifest(null, options), 'handler'],
    ['[package]\nversion = "1"\nname= \'a-b_c\' # text\n[lib]\nname = "other"', 'a-b_c'],
    ['[workspace]\nmembers = ["a"]\n', null],
    ['', null],
  ] as const)
    t.equal(packageNameOf(text), name)
})
