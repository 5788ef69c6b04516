import { cpSync, readdirSync, readFileSync, utimesSync } from 'node:fs'
import { homedir } from 'node:os'
import t from 'tap'
import { type BuildBed, makeBuilds, missingToolchain } from '../helpers/compiled.ts'
import { makeTree } from '../helpers/tree.ts'
import { type DaemonClient, startDaemon } from '../helpers/worker-client.ts'

const missing = missingToolchain('rust')
if (missing !== null) {
  t.plan(0, missing)
  process.exit(0)
}

// A first build on a busy machine fetches and compiles for a while.
t.setTimeout(180_000)

const USE = 'use serde_json::{json, Value};\n\n'
const GOOD = 'pub fn handler(_event: Value) -> Value {\n    json!({ "status": 200, "body": "good" })\n}\n'

// One folder of compiled dependencies for all builds of this file.
const bed = makeBuilds({ 'good/handler.rs': USE + GOOD })
const daemon = await startDaemon('rust', { root: bed.tree.root })
t.teardown(async () => {
  await daemon.close()
  await bed.close()
})

async function call(on: BuildBed, through: DaemonClient, file: string): Promise<string> {
  const fn = on.fn(file)
  const binary = (await on.builds.prepare(fn))!
  const worker = await through.worker({ dir: fn.fnDir, entry: fn.entryPath, binary })
  const { text } = await worker.call()
  await worker.close()
  return text
}

t.test(
  '[dependencies/resolve.5, dependencies/resolve.13, runtimes/rust.1] a function builds with what others left, and a copy needs no build',
  async t => {
    t.equal(await call(bed, daemon, 'good/handler.rs'), 'good')
    t.same(readdirSync(bed.tree.path('good')).sort(), ['.rust-build', 'handler.rs'])
    t.same(
      readdirSync(bed.tree.path('.svc/build')).filter(name => name !== 'cargo'),
      ['tmp'],
    )
    bed.tree.write({
      'more/handler.rs': `${USE}#[path = "_shared.rs"]\nmod shared;\nmod plain;\n\npub fn handler(_event: Value) -> Value {\n    json!({ "status": 200, "body": format!("{}{}{}", shared::text(), crate::plain::text(), include_str!("text.txt")) })\n}\n`,
      'more/_shared.rs': 'pub fn text() -> &\'static str {\n    "s"\n}\n',
      'more/plain.rs': 'pub fn text() -> &\'static str {\n    "p"\n}\n',
      'more/text.txt': 't',
      'Cargo.toml': 'a broken manifest of a folder above',
    })
    t.equal(await call(bed, daemon, 'more/handler.rs'), 'spt')
    const count = bed.built.length
    bed.tree.write({ 'more/data.json': '{}' })
    t.equal(await call(bed, daemon, 'more/handler.rs'), 'spt')
    t.equal(bed.built.length, count, 'data is not in it')
    bed.tree.remove('Cargo.toml')
    bed.tree.write({ 'more/text.txt': 'T', 'more/plain.rs': 'pub fn text() -> &\'static str {\n    "P"\n}\n' })
    t.equal(await call(bed, daemon, 'more/handler.rs'), 'sPT')

    const copy = makeBuilds({})
    t.teardown(() => copy.close())
    cpSync(bed.tree.path('more'), copy.tree.path('moved'), { recursive: true })
    utimesSync(copy.tree.path('moved/handler.rs'), 1, 1)
    await copy.builds.prepare(copy.fn('moved/handler.rs'))
    t.same(copy.built, [], 'the same content elsewhere, with other times')
  },
)

t.test('[dependencies/resolve.19] what files say counts, not when they were written', async t => {
  const handler = (text: string) =>
    `${USE}mod part;\n\npub fn handler(_event: Value) -> Value {\n    json!({ "status": 200, "body": format!("${text} {} {}", part::TEXT, near::TEXT) })\n}\n`
  const part = (text: string) => `pub const TEXT: &str = "${text}";\n`
  bed.tree.write({
    'back/handler.rs': handler('new'),
    'back/part.rs': part('new'),
    'back/Cargo.toml': '[package]\nname = "back"\n\n[dependencies]\nnear = { path = "../near" }\n',
    'near/Cargo.toml': '[package]\nname = "near"\nversion = "1.0.0"\nedition = "2021"\n',
    'near/src/lib.rs': part('new'),
  })
  t.equal(await call(bed, daemon, 'back/handler.rs'), 'new new new')
  for (const [file, text, expected] of [
    ['back/handler.rs', handler('old'), 'old new new'],
    ['back/part.rs', part('old'), 'old old new'],
    ['near/src/lib.rs', part('old'), 'old old old'],
  ] as const) {
    bed.tree.write({ [file]: text })
    // As a copy that is put back has it, or one that came with the times of where it was made.
    utimesSync(bed.tree.path(file), 1e9, 1e9)
    t.equal(await call(bed, daemon, 'back/handler.rs'), expected)
  }
  const ours = readFileSync('runtimes/rust/worker/Cargo.toml', 'utf8')
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'))
  t.match(ours, `\nversion = "${version}"\n`, 'another worker is another crate')
})

t.test(
  '[dependencies/resolve.13] crates are kept in the build folder, and no network is needed afterwards',
  async t => {
    const home = makeTree({
      '.cargo/config.toml': '[net]\nretry = 1\n',
      '.cargo/bin/cargo': 'no program',
    })
    t.teardown(() => home.cleanup())
    const hostEnv: Record<string, string | undefined> = {
      HOME: home.root,
      CARGO_HOME: undefined,
      // Where the toolchain is does not follow the home folder.
      RUSTUP_HOME: process.env.RUSTUP_HOME ?? `${homedir()}/.rustup`,
    }
    const own = makeBuilds({ 'one/handler.rs': USE + GOOD }, { hostEnv })
    t.teardown(() => own.close())
    await own.builds.prepare(own.fn('one/handler.rs'))
    const [index] = readdirSync(own.tree.path('.svc/build/cargo/registry/cache'))
    const crates = readdirSync(own.tree.path(`.svc/build/cargo/registry/cache/${index}`))
    t.ok(
      crates.some(name => /^serde_json-.*\.crate$/.test(name)),
      crates.join(' '),
    )
    t.match(readFileSync(own.tree.path('.svc/build/cargo/config.toml'), 'utf8'), 'retry', "the user's settings hold")
    t.same(readdirSync(home.path('.cargo')).sort(), ['bin', 'config.toml'], 'nothing of it is elsewhere')

    const offline = makeBuilds({}, { hostEnv: { ...hostEnv, CARGO_NET_OFFLINE: 'true' } })
    t.teardown(() => offline.close())
    cpSync(own.tree.path('.svc/build/cargo'), offline.tree.path('.svc/build/cargo'), { recursive: true })
    offline.tree.write({ 'two/handler.rs': USE + GOOD.replace('good', 'offline') })
    await offline.builds.prepare(offline.fn('two/handler.rs'))
    t.equal(offline.built.length, 1)
  },
)

t.test("[dependencies/resolve.4, runtimes/rust.2] the user's Cargo.toml is respected", async t => {
  bed.tree.write({
    'own/handler.rs':
      'use serde_json::{json, Value};\nuse renamed::text;\n\npub fn handler(event: Value) -> Result<Value, std::fmt::Error> {\n    assert!(event["path"] != "/panic", "caught");\n    let feature = cfg!(feature = "loud");\n    Ok(json!({ "status": 200, "body": format!("{} {} {}", env!("CARGO_PKG_NAME"), text(), feature) }))\n}\n',
    'own/Cargo.toml':
      '# mine\n[package]\nname = "mine"\nversion = "1.2.3"\nedition = "2018"\nbuild = "gone.rs"\ninclude = [\n  "a",\n  "[b]",\n]\n\n[lib]\npath = "nowhere.rs"\n\n[[bin]]\nname = "cli"\npath = "nowhere.rs"\n\n[features]\ndefault = ["loud"]\nloud = []\n\n[dependencies]\nrenamed = { path = "inner", package = "inner" }\n\n[profile.release]\nopt-level = 0\npanic = "abort"\n',
    'own/inner/Cargo.toml': '[package]\nname = "inner"\nversion = "0.1.0"\nedition = "2021"\n',
    'own/inner/src/lib.rs': 'pub fn text() -> &\'static str {\n    "inner"\n}\n',
  })
  t.equal(await call(bed, daemon, 'own/handler.rs'), 'mine inner true')
  const own = bed.fn('own/handler.rs')
  const worker = await daemon.worker({ dir: own.fnDir, entry: own.entryPath, binary: (await bed.builds.prepare(own))! })
  t.match((await worker.call({ path: '/panic' })).header, { code: 'exception', message: 'caught' })
  await worker.close()
  bed.tree.write({ 'own/inner/src/lib.rs': 'pub fn text() -> &\'static str {\n    "changed"\n}\n' })
  t.equal(await call(bed, daemon, 'own/handler.rs'), 'mine changed true')
})

t.test(
  '[dependencies/resolve.8, runtimes/rust.3, runtimes/rust.4] failures name file and line of the user and say what to write',
  async t => {
    const cases: [name: string, text: string, message: RegExp, line: number, hint: string | null][] = [
      [
        'undefined',
        `${USE}pub fn handler(_event: Value) -> Value {\n    nope()\n}\n`,
        /^build failed: undefined\/handler\.rs:4:5: error\[E0425\]: cannot find function `nope`/,
        4,
        null,
      ],
      [
        'syntax',
        `${USE}pub fn handler(_event: Value) -> Value {\n    json!({\n`,
        /^build failed: syntax\/handler\.rs:\d+:\d+: error/,
        5,
        null,
      ],
      [
        'crate',
        `use regex::Regex;\n${USE}${GOOD}`,
        /^build failed: crate\/handler\.rs:1:5: error\[E0432\]/,
        1,
        'name the crate under [dependencies] in crate/Cargo.toml (there is none yet)',
      ],
      [
        'signature',
        'pub fn handler(name: String) -> String {\n    name\n}\n',
        /^build failed: signature\/handler\.rs:1: handler must take a serde_json::Value and return one/,
        1,
        'write pub fn handler',
      ],
      [
        'private',
        `${USE}// pub fn handler\n${GOOD.replace('pub ', '')}`,
        /^private\/handler\.rs:4: handler must be pub$/,
        4,
        'write pub fn handler',
      ],
      [
        'future',
        USE + GOOD.replace('pub fn', 'pub async fn'),
        /^future\/handler\.rs:3: handler must not be async/,
        3,
        'write pub fn handler',
      ],
      [
        'none',
        'fn main() {}\n/* /* */ pub fn handler() */\nconst TEXT: &str = r#"\npub fn handler() "\n"#;\n',
        /^none\/handler\.rs: no function pub fn handler$/,
        1,
        'write pub fn handler',
      ],
    ]
    for (const [name, text] of cases) bed.tree.write({ [`${name}/handler.rs`]: text })
    for (const [name, , message, line, hint] of cases) {
      const error = await bed.failure(`${name}/handler.rs`)
      t.match(error, { code: 'LOAD_FAILED', status: 500, message }, name)
      t.match(error.detail, { file: `${name}/handler.rs`, ...(name !== 'syntax' && { line }) }, name)
      if (hint !== null) t.match(error.detail?.hint, hint, name)
      t.ok(error.message.split('\n').length <= 9)
      t.notMatch(error.message, /\.rust-build|main\.rs/, name)
    }
    const named = bed.fn('good/handler.rs', { handler: 'process' })
    await t.rejects(bed.builds.prepare(named), { message: 'good/handler.rs: no function pub fn process' })
  },
)

t.test('[dependencies/resolve.9] FN_RUST_BUILD_TIMEOUT_S ends a build', async t => {
  const bed = makeBuilds({ 'slow/handler.rs': USE + GOOD }, { rustBuildTimeoutSeconds: 0.001 })
  t.teardown(() => bed.close())
  t.match(
    (await bed.failure('slow/handler.rs')).message,
    /^build failed: .* took longer than 0\.001 s and was stopped$/,
  )
})
