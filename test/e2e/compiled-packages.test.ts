import t from 'tap'
import { createGateway } from '../../lib/index.ts'
import { injectBuilt, missingToolchain, shareCrates } from '../helpers/compiled.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

// Compilers are slow on a busy machine.
t.setTimeout(400_000)

interface Language {
  runtime: 'go' | 'rust'
  /** Two versions of one package, in folders that serve nothing. */
  packages: Record<string, string>
  /** A function that answers the version it was built with. */
  files(name: string, version: 1 | 2): Record<string, string>
}

const GO_HANDLER = `package handler

import "example.com/left"

func Handler(event map[string]any) any {
	return map[string]any{"status": 200, "body": left.Version}
}
`
const RUST_HANDLER = `use serde_json::{json, Value};

pub fn handler(_event: Value) -> Value {
    json!({"status": 200, "body": left::VERSION})
}
`

const LANGUAGES: readonly Language[] = [
  {
    runtime: 'go',
    packages: Object.fromEntries(
      [1, 2].flatMap(version => [
        [`_left${version}/go.mod`, 'module example.com/left\n\ngo 1.18\n'],
        [`_left${version}/left.go`, `package left\n\nconst Version = "left ${version}"\n`],
      ]),
    ),
    files: (name, version) => ({
      [`${name}/handler.go`]: GO_HANDLER,
      [`${name}/go.mod`]: `module ${name}\n\ngo 1.18\n\nrequire example.com/left v${version === 1 ? '1.0.0' : '1.2.0'}\n\nreplace example.com/left => ../_left${version}\n`,
    }),
  },
  {
    runtime: 'rust',
    packages: Object.fromEntries(
      [1, 2].flatMap(version => [
        [`_left${version}/Cargo.toml`, `[package]\nname = "left"\nversion = "${version}.0.0"\nedition = "2021"\n`],
        [`_left${version}/src/lib.rs`, `pub const VERSION: &str = "left ${version}";\n`],
      ]),
    ),
    files: (name, version) => ({
      [`${name}/handler.rs`]: RUST_HANDLER,
      [`${name}/Cargo.toml`]: `[package]\nname = "${name}"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\nserde_json = "1"\nleft = { path = "../_left${version}", version = "${version}" }\n`,
    }),
  },
]

for (const { runtime, packages, files } of LANGUAGES) {
  t.test(
    `[dependencies/resolve.15] ${runtime}: two functions with conflicting versions answer side by side, and an edit of a version is seen`,
    { skip: missingToolchain(runtime) ?? false },
    async t => {
      const tree = makeTree({ ...packages, ...files('old', 1), ...files('new', 2) })
      t.teardown(tree.cleanup)
      const gateway = await createGateway({
        functionsRoot: tree.root,
        runtimes: [runtime],
        hotReload: false,
        // Nothing is fetched.
        env: { ...process.env, ...shareCrates(), GOPROXY: 'off', GOFLAGS: '-mod=mod' },
      })
      t.teardown(() => gateway.close())
      const built: string[] = []
      gateway.on('log', ({ message }) => {
        if (message.startsWith('built ')) built.push(message)
      })
      const ask = async (name: string) => (await injectBuilt(gateway, `/${name}`)).text()
      t.same(await Promise.all(['old', 'new', 'old'].map(ask)), ['left 1', 'left 2', 'left 1'])
      const [source] = Object.keys(packages).filter(name => /^_left1\/.*left\.go$|^_left1\/src/.test(name)) as [string]
      tree.write({ [source]: packages[source]!.replace('left 1', 'left 1.1') })
      await gateway.reload()
      await until(() => built.filter(message => message.includes('/old@')).length === 2, 100_000)
      let answer = await ask('old')
      // It is told a moment before it is in force.
      while (answer === 'left 1') answer = await ask('old')
      t.same([answer, await ask('new')], ['left 1.1', 'left 2'])
    },
  )
}
