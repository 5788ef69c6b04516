import { execFile, execFileSync, spawn, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, posix } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { parse } from 'yaml'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import t from 'tap'
import { fetchPage } from './helpers/chromium.ts'
import { noBrowser, withPage } from './helpers/console-bed.ts'
import { startNpmRegistry, type TestPackage } from './helpers/npm-registry.ts'
import { BUNDLED, shippedPaths } from '../build/shipped.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const readJson = (file: string) => JSON.parse(readFileSync(join(root, file), 'utf8'))

// Compiling, packing and installing take longer than the 30 seconds of a file that is run by itself.
t.setTimeout(280_000)

interface LockedPackage {
  version: string
  dev?: boolean
  optional?: boolean
  hasInstallScript?: boolean
  integrity?: string
  optionalDependencies?: Record<string, string>
  dependencies?: Record<string, string>
  devDependencies?: Record<string, string>
}

t.test('[package.1] the lock file is whole for every system', async t => {
  const locked: Record<string, LockedPackage> = readJson('package-lock.json').packages
  const missing: string[] = []
  const unsafe: string[] = []
  for (const [path, { integrity, optionalDependencies = {} }] of Object.entries(locked)) {
    if (path !== '' && integrity === undefined) unsafe.push(path)
    for (const name of Object.keys(optionalDependencies)) {
      const places = [`node_modules/${name}`, `${path}/node_modules/${name}`]
      if (!places.some(place => place in locked)) missing.push(`${name}, which ${path} names`)
    }
  }
  t.same(missing, [], 'optional packages that are not in the lock file')
  t.same(unsafe, [], 'packages without a checksum')
  const scripted = Object.keys(locked).filter(path => locked[path]!.hasInstallScript === true)
  // The second one is a part of bullmq's: a prebuilt library, or nothing.
  const known = ['node_modules/esbuild', 'node_modules/msgpackr-extract']
  t.same(scripted, known, 'packages that run a script when they are installed')
  const { dependencies, devDependencies } = readJson('package.json')
  t.same(locked['']?.dependencies, dependencies)
  t.same(locked['']?.devDependencies, devDependencies)
})

t.test('[package.2] one lowest version of Node', async t => {
  const lowest = /^>=(\d+)\.(\d+)$/.exec(readJson('package.json').engines.node)
  t.ok(lowest, 'engines gives a lowest version')
  const [, major, minor] = lowest ?? []
  t.equal(readFileSync(join(root, '.nvmrc'), 'utf8').trim(), major)
  t.match(readFileSync(join(root, 'README.md'), 'utf8'), `Node ${major}.${minor} or later`)
})

const tsc = join(root, 'node_modules/typescript/bin/tsc')
const temp = mkdtempSync(join(tmpdir(), 'fngw-pack-'))
/** No parent of it has packages, as the folder of a build has. */
const away = mkdtempSync(join(tmpdir(), 'fngw-user-'))
t.teardown(() => {
  for (const folder of [temp, away]) rmSync(folder, { recursive: true, force: true })
})

/** What npm says on standard output; its settings are those of nobody. */
async function npm(cwd: string, ...args: string[]): Promise<string> {
  const env = { PATH: process.env.PATH, HOME: temp, npm_config_cache: join(temp, 'cache') }
  return (await promisify(execFile)('npm', args, { cwd, env, maxBuffer: 1 << 26 })).stdout
}

/** The folder that is packed, with a build of its own. */
function buildPackage() {
  const folder = join(temp, 'package')
  const manifest = readJson('package.json')
  // A pattern such as docs/*.md picks from the folder when it is packed.
  const listed = manifest.files.filter((name: string) => name !== 'dist' && !name.startsWith('!'))
  const names = listed.map((name: string) => name.split('/*')[0]!)
  const filter = (path: string): boolean => !path.endsWith('/node_modules')
  for (const name of ['package.json', ...names])
    cpSync(join(root, name), join(folder, name), { recursive: true, filter })
  const dist = join(folder, 'dist')
  // Declarations of the build need the packages beside them.
  symlinkSync(join(root, 'node_modules'), join(temp, 'node_modules'))
  for (const words of [
    [tsc, '-p', 'tsconfig.build.json', '--outDir', dist],
    ['build/bundle.mjs', dist],
    ['build/copy-docs.mjs', dist],
    ['--import', 'tsx', 'build/man-page.mjs', dist],
    ['build/console.mjs', join(dist, 'console')],
  ]) {
    const { status, stdout, stderr } = spawnSync(process.execPath, words, { cwd: root, encoding: 'utf8' })
    if (status !== 0) throw new Error(`${words.join(' ')}\n${stdout}${stderr}`)
  }
  return { folder, manifest }
}

let built: ReturnType<typeof buildPackage>

interface Packed {
  filename: string
  size: number
  unpackedSize: number
  files: { path: string }[]
}

/** Each folder as npm would publish it. */
async function pack(cwd: string, ...folders: string[]): Promise<Packed[]> {
  return JSON.parse(await npm(cwd, 'pack', '--json', '--ignore-scripts', '--pack-destination', temp, ...folders))
}

let packed: Packed
let tarball: string
t.before(async () => {
  built = buildPackage()
  packed = (await pack(temp, built.folder))[0]!
  tarball = join(temp, packed.filename)
  await startRegistry()
})

t.test('[package.3, package.4] what is packed resolves, and runs nothing when it is installed', async t => {
  const { folder, manifest } = built
  const { messages } = await publint({ pkgDir: folder, strict: true, pack: false })
  t.same(
    messages.map(message => formatMessage(message, manifest)),
    [],
  )
  const files = packed.files.map(({ path }) => path)
  for (const file of ['dist/bin/fngw.js', 'dist/lib/index.js', 'dist/lib/index.d.ts', 'runtimes/python/daemon.py'])
    t.ok(files.includes(file), file)
  for (const file of [...manifest.man, manifest.main, manifest.types, 'dist/console/files.json'])
    t.ok(files.includes(file.replace(/^\.\//, '')), file)
  for (const name of ['swagger-ui-bundle.js', 'swagger-ui.css', 'LICENSE', 'NOTICE'])
    t.ok(files.includes(`dist/docs/${name}`), name)
  t.equal(manifest.dependencies['swagger-ui-dist'], undefined, 'twelve megabytes for two')
  t.ok(packed.size < 2.5 * 1024 * 1024, `${packed.size} bytes are fetched`)
  t.ok(packed.unpackedSize < 8 * 1024 * 1024, `${packed.unpackedSize} bytes are installed`)
  const licences = readFileSync(join(folder, 'dist/LICENSES'), 'utf8')
  for (const name of BUNDLED) {
    t.notOk(name in manifest.dependencies, `${name} is part of the build`)
    t.match(licences, new RegExp(`^${name} \\d`, 'm'))
  }
  t.same(
    files.filter(file => /\.test\.|^test\/|\.env$/.test(file) && !file.startsWith('examples/')),
    [],
  )
  // What running the examples leaves behind.
  t.same(
    files.filter(file => /node_modules|\.svc\/|__pycache__|\.(go|rust)-build\//.test(file)),
    [],
  )
  const broken = files.filter(file => file.endsWith('.md')).flatMap(file => brokenLinks(folder, file, files))
  t.same(broken, [], 'links of packed pages that lead to no packed file')
  for (const script of ['preinstall', 'install', 'postinstall', 'prepare']) t.notOk(script in manifest.scripts, script)
})

/** Relative links and pictures of a page. @param files - of the package */
function brokenLinks(folder: string, page: string, files: readonly string[]): string[] {
  const text = readFileSync(join(folder, page), 'utf8').replace(/^```.*?^```|`[^`\n]*`/gms, '')
  const links = [...text.matchAll(/\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)"/g)].map(
    ([, link, tag]) => link ?? tag!,
  )
  const paths = links.filter(link => !/^([a-z]+:|#)/.test(link)).map(link => link.split('#')[0]!)
  return paths.filter(path => !files.includes(posix.join(posix.dirname(page), path))).map(path => `${page}: ${path}`)
}

/** Packages of the lock file that somebody who installs this one gets, without those for other systems. */
function productionPackages(): [path: string, locked: LockedPackage][] {
  const locked: [string, LockedPackage][] = Object.entries(readJson('package-lock.json').packages)
  return locked.filter(([path, { dev }]) => path !== '' && dev !== true)
}

let registry: Awaited<ReturnType<typeof startNpmRegistry>>

/** A registry of this machine with the packages that this one needs. */
async function startRegistry() {
  const paths = productionPackages().map(([path]) => path)
  const there = paths.filter(path => existsSync(join(root, path, 'package.json')))
  const archives = await pack(root, ...there.map(path => `./${path}`))
  const packages: TestPackage[] = there.map((path, i) => {
    const { name, version, ...fields } = readJson(join(path, 'package.json'))
    return { name, version, fields, archive: readFileSync(join(temp, archives[i]!.filename)) }
  })
  registry = await startNpmRegistry(packages)
  t.teardown(() => registry.close())
}

/** The package from its tarball in an empty folder. @param more - options of `npm install` */
async function install(folder: string, ...more: string[]): Promise<void> {
  mkdirSync(folder)
  writeFileSync(join(folder, 'package.json'), '{}')
  const quiet = ['--ignore-scripts', '--no-audit', '--no-fund']
  await npm(folder, 'install', '--registry', registry.url, ...quiet, ...more, tarball)
}

/** Versions of Node that run what is installed: test/run.mjs names a second one. */
const NODES = [process.execPath, ...(process.env.FNGW_TEST_OTHER_NODE ? [process.env.FNGW_TEST_OTHER_NODE] : [])]
const toEnv = (node: string, more: Record<string, string> = {}) => ({
  PATH: `${join(node, '..')}:${process.env.PATH}`,
  HOME: temp,
  NO_COLOR: '1',
  ...more,
})

t.test('[package.10] installed for all, its program and its manual page are found by name', async t => {
  const prefix = join(temp, 'everybody')
  await install(prefix, '--global', '--prefix', prefix)
  for (const node of NODES) {
    const version = execFileSync(join(prefix, 'bin/fngw'), ['version'], { env: toEnv(node), encoding: 'utf8' })
    t.equal(version.trim(), built.manifest.version)
  }
  t.match(readFileSync(join(prefix, 'share/man/man1/fngw.1'), 'utf8'), /^\.TH FNGW 1 /m)
})

const user = join(away, 'user')

t.test(
  '[package.4, package.6] it is installed from the tarball in an empty folder, scripts off, and serves',
  async t => {
    await install(user)
    const tree = JSON.parse(await npm(user, 'ls', '--all', '--json'))
    t.same([tree.problems, Object.keys(tree.dependencies)], [undefined, ['fngw']], 'nothing is missing')
    const program = join(user, 'node_modules/.bin/fngw')
    mkdirSync(join(user, 'functions'))
    writeFileSync(
      join(user, 'functions/plain.js'),
      'exports.handler = event => ({ status: 200, body: event.method })\n',
    )
    writeFileSync(join(user, 'functions/typed.ts'), 'export const handler = (): { n: number } => ({ n: 1 })\n')
    const served = "assert.deepEqual((await gateway.inject('/typed')).json(), { n: 1 })"
    const imports = ['assert from "node:assert"', '{ test } from "node:test"', '{ gateway } from "fngw/test"']
    const lines = [...imports.map(text => `import ${text}`), `test('typed', async () => ${served})`]
    writeFileSync(join(user, 'functions/typed.test.ts'), lines.join('\n'))
    writeFileSync(join(user, 'functions/small.lua'), 'function handler() return "lua" end\n')
    // The packages that are part of the build: one reads cron texts, another checks input, the third knows media types.
    mkdirSync(join(user, 'functions/checked'))
    writeFileSync(join(user, 'functions/checked/handler.js'), 'exports.handler = () => ({ n: 2 })\n')
    writeFileSync(join(user, 'functions/checked/schema.json'), '{ "query": { "required": ["n"] } }')
    const config = { invoke: { validate: true, methods: ['GET'] }, schedule: { cron: '0 3 * * *' } }
    writeFileSync(join(user, 'functions/checked/fn.config.json'), JSON.stringify(config))
    mkdirSync(join(user, 'functions/site'))
    writeFileSync(join(user, 'functions/site/logo.svg'), '<svg/>')
    writeFileSync(join(user, 'functions/fn.config.json'), '{ "assets": { "directory": "site" } }')
    for (const [i, node] of NODES.entries()) {
      const env = toEnv(node)
      const version = execFileSync(program, ['version'], { cwd: user, env, encoding: 'utf8' })
      t.equal(version.trim(), built.manifest.version)
      // What it reads of the package besides code.
      const words = ['conformance', '--write', `tree-${i}`, '--languages', 'js']
      execFileSync(program, words, { cwd: user, env, stdio: 'pipe' })
      t.ok(existsSync(join(user, `tree-${i}/js/all/handler.js`)), 'the tree of fixtures')
      const tested = execFileSync(program, ['test', '', 'functions'], { cwd: user, env, encoding: 'utf8' })
      t.match(tested, /^passed {3}node:test {2}typed\.test\.ts: 1 passed, 0 failed$/m)
      const running = await start(['run', 'functions', '--native', '--port', '0', '--runtimes', 'node,lua'], env)
      t.teardown(running.stop)
      const ask = async (path: string) => (await fetch(`${running.url}${path}`)).text()
      t.same([await ask('/plain'), await ask('/typed'), await ask('/small')], ['GET', '{"n":1}', '"lua"'])
      t.same([await ask('/checked?n=1'), (await fetch(`${running.url}/checked`)).status], ['{"n":2}', 400])
      t.match(await ask('/_fn/schedules'), /"next_at":"\d{4}-\d\d-\d\dT03:00:00/)
      t.equal((await fetch(`${running.url}/logo.svg`)).headers.get('content-type'), 'image/svg+xml')
      t.equal(await running.stop(), 0)
    }
  },
)

/** Starts the installed program. `stop` ends it and resolves with its exit code. */
async function start(
  words: string[],
  env: Record<string, string>,
): Promise<{ url: string; stop: () => Promise<number | null> }> {
  const program = join(user, 'node_modules/.bin/fngw')
  const child = spawn(program, words, { cwd: user, env, stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = new Promise<number | null>(resolve => child.once('exit', resolve))
  const url = await new Promise<string>((resolve, reject) => {
    void ended.then(code => reject(new Error(`fngw ended with ${code} before it was ready`)))
    createInterface({ input: child.stdout }).on('line', line => {
      const found = /http:\/\/[^"\s]+/.exec(/^ready |"event":"ready"/.test(line) ? line : '')
      if (found !== null) resolve(found[0])
    })
  })
  const stop = () => {
    child.kill()
    return ended
  }
  return { url, stop }
}

t.test('[package.6] /docs and /console of the installed package have every file they name', async t => {
  const words = ['dev', 'functions', '--native', '--port', '0', '--runtimes', 'node,lua']
  let url = ''
  // The last one stays for the browser.
  for (const node of NODES) {
    const running = await start(words, toEnv(node, { FN_UI_ENABLED: '1' }))
    t.teardown(running.stop)
    url = running.url
    for (const address of ['/docs', '/console']) {
      const statuses = await fetchPage(`${url}${address}`)
      t.ok(statuses.size > 4, `${address} names ${statuses.size} files`)
      for (const [link, status] of statuses) t.equal(status, 200, link)
    }
  }

  if (noBrowser !== false) {
    t.pass('a browser shows both pages', { skip: noBrowser })
    return
  }
  await withPage(t, `${url}/docs`, async page => {
    const operations = page.locator('.opblock-summary-path')
    await operations.first().waitFor()
    t.same((await operations.allInnerTexts()).sort(), ['/checked', '/plain', '/small', '/typed'])
  })
  await withPage(t, `${url}/console/functions`, page => page.getByText('plain', { exact: true }).first().waitFor())
})

/** A program of somebody who uses the package; every name is used as a value, a type, or both. */
const PROGRAM = `
const make: (options?: GatewayOptions) => Promise<Gateway> = createGateway
export async function main(): Promise<number> {
  const gateway = await make({ functionsRoot: '.', port: 0 })
  const answer: InjectResponse = await gateway.inject({ url: '/x', query: { a: 1 }, payload: {} })
  const page: Response = await gateway.fetch('http://localhost/x')
  const { url, control }: GatewayListening = await gateway.listen()
  const handler: FnHandler = (event: FnEvent) => ({ status: 200, body: event.method + url + (control?.url ?? '') })
  try {
    await gateway.close()
  } catch (error) {
    if (error instanceof GatewayError) console.log(error.code satisfies ErrorCode)
    if (error instanceof ListenError) console.log(error.port)
    if (error instanceof SettingsError) console.log(error.problems.length)
  }
  // @ts-expect-error: the types are there, not any.
  gateway.nonsense()
  return answer.status + page.status + handler.length
}
`
const NAMES =
  'createGateway, GatewayError, ListenError, SettingsError, type ErrorCode, type FnEvent, type FnHandler, type Gateway, type GatewayListening, type GatewayOptions, type InjectResponse'

/** Everything that a strict project may set. */
const STRICTEST = [
  ...['strict', 'exactOptionalPropertyTypes', 'noUncheckedIndexedAccess', 'noPropertyAccessFromIndexSignature'],
  ...['noImplicitOverride', 'noImplicitReturns', 'noFallthroughCasesInSwitch', 'noUnusedLocals', 'noUnusedParameters'],
  ...['isolatedModules', 'erasableSyntaxOnly', 'noUncheckedSideEffectImports', 'forceConsistentCasingInFileNames'],
].map(flag => `--${flag}`)

t.test('[package.5] types and values are found by modules and by CommonJS', async t => {
  mkdirSync(join(user, 'node_modules/@types'), { recursive: true })
  for (const name of ['@types/node', 'undici-types'])
    symlinkSync(join(root, 'node_modules', name), join(user, 'node_modules', name))
  writeFileSync(join(user, 'program.cts'), `import { ${NAMES} } from 'fngw'\n${PROGRAM}`)
  const testing = "import { gateway as tested } from 'fngw/test'\nexport const url: string = tested.url\n"
  writeFileSync(join(user, 'program.mts'), `import { ${NAMES} } from 'fngw'\n${testing}${PROGRAM}`)
  t.notOk(existsSync(join(user, 'node_modules/@opentelemetry')), 'an optional peer that is not installed')
  for (const [files, ...options] of [
    [['program.cts', 'program.mts'], '--module', 'node16'],
    [['program.cts', 'program.mts'], '--module', 'nodenext'],
    [['program.mts'], '--module', 'nodenext', '--verbatimModuleSyntax'],
    [['program.mts'], '--module', 'esnext', '--moduleResolution', 'bundler'],
    // TypeScript 6 and newer load no types unless they are named: the package refers to those of Node.js itself.
    [['program.cts', 'program.mts'], '--module', 'node16', '--types', ''],
  ] as const) {
    const given = [
      '--noEmit',
      ...STRICTEST,
      '--skipLibCheck',
      'false',
      '--target',
      'es2022',
      '--types',
      'node',
      ...options,
      ...files,
    ]
    const { stdout } = spawnSync(process.execPath, [tsc, ...given], { cwd: user, encoding: 'utf8' })
    t.equal(stdout, '', options.join(' '))
  }

  for (const node of NODES) {
    const run = (text: string, ...options: string[]): string =>
      execFileSync(node, [...options, '--eval', text], { cwd: user, encoding: 'utf8' }).trim()
    const required = run("console.log(Object.keys(require('fngw')).sort().join())")
    const imported = run("console.log(Object.keys(await import('fngw')).sort().join())", '--input-type=module')
    t.equal(required.replace('__esModule,', ''), imported, 'the same values')
    const declared = readFileSync(join(root, 'cjs/index.d.cts'), 'utf8').matchAll(/declare const (\w+)/g)
    t.same([...declared].map(([, name]) => name).sort(), imported.split(','), 'every value is declared')
    const one = "import('fngw').then(m => console.log(m.createGateway === require('fngw').createGateway))"
    t.equal(run(one), 'true', 'one copy')
  }
})

t.test('[package.5] attw finds nothing wrong, for resolvers of every age', async t => {
  if (process.env.FNGW_TEST_ATTW !== '1') {
    t.pass('attw', { skip: 'it is fetched from the registry: npm run test:attw' })
    return
  }
  const { status, stdout, stderr } = spawnSync('npx', ['--yes', '@arethetypeswrong/cli@0.18.5', tarball], {
    cwd: temp,
    encoding: 'utf8',
  })
  t.equal(status, 0, stdout + stderr)
})

t.test('[package.7] npm run sbom lists what is installed with the package', async t => {
  const { components } = JSON.parse(await npm(root, 'run', '--silent', 'sbom')) as {
    components: { name: string; version: string; purl: string; hashes: unknown[]; licenses: unknown[] }[]
  }
  const locked: Record<string, LockedPackage> = readJson('package-lock.json').packages
  const wanted = [...shippedPaths()].map(path => `${path.split('node_modules/').at(-1)}@${locked[path]!.version}`)
  for (const name of [...BUNDLED, 'luxon', 'tsx'])
    t.ok(
      wanted.some(one => one.startsWith(`${name}@`)),
      name,
    )
  t.same(components.map(({ name, version }) => `${name}@${version}`).sort(), wanted.sort())
  for (const { name, purl, hashes, licenses } of components)
    t.ok(purl !== '' && hashes.length > 0 && licenses.length > 0, `${name}: address, checksum and licence`)
})

interface Step {
  run?: string
}

t.test('[package.8] a release is checked, built without scripts, and published with provenance', async t => {
  const text = readFileSync(join(root, '.github/workflows/release.yml'), 'utf8')
  const { permissions, jobs } = parse(text) as {
    permissions: Record<string, string>
    jobs: { publish: { permissions: Record<string, string>; steps: Step[] } }
  }
  t.same(permissions, { contents: 'read' })
  t.equal(jobs.publish.permissions['id-token'], 'write', 'provenance is signed for')
  const runs = jobs.publish.steps.flatMap(({ run }) => run ?? [])
  const at = (start: string): number => runs.findIndex(run => run.startsWith(start))
  const order = [
    'npm ci --ignore-scripts',
    'npm test',
    'npm run test:attw',
    'npm run build',
    'npm publish --provenance',
  ].map(at)
  t.same(
    order,
    order.toSorted((a, b) => a - b),
  )
  t.notOk(order.includes(-1))
  const { scripts } = readJson('package.json')
  for (const [, name] of text.matchAll(/npm run (?:--silent )?([\w:]+)/g)) t.ok(name! in scripts, `npm run ${name}`)
  t.notMatch(text, /NPM_TOKEN|NODE_AUTH_TOKEN/, 'no token is kept')

  // Steps of its own, in a project of two releases and one that is to come.
  const folder = join(temp, 'release')
  mkdirSync(folder)
  const section = '## 1.2.0 - 2026-11-22\n- b\n'
  writeFileSync(join(folder, 'package.json'), '{ "version": "1.2.0" }')
  writeFileSync(join(folder, 'CHANGELOG.md'), `# C\n## Unreleased\n- a\n${section}## 1.2.0-rc - 2026-11-01\n- c\n`)
  const run = (start: string, tag: string): number | null =>
    spawnSync('bash', ['-e', '-c', `gh() { :; }\n${runs[at(start)]}`], {
      cwd: folder,
      env: { ...process.env, GITHUB_REF_NAME: tag, GITHUB_REPOSITORY: 'a/b' },
    }).status
  t.equal(run('version=', 'v1.2.0'), 0)
  t.equal(run('version=', 'v1.2.1'), 1, 'another tag')
  t.equal(run('awk', 'v1.2.0'), 0)
  t.equal(readFileSync(join(folder, 'notes.md'), 'utf8'), section, 'the notes are those of the version')
  writeFileSync(join(folder, 'CHANGELOG.md'), '# C\n## Unreleased\n- a\n')
  t.equal(run('version=', 'v1.2.0'), 1, 'a version without notes')
})
