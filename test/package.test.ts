import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import t from 'tap'

const root = fileURLToPath(new URL('..', import.meta.url))
const readJson = (file: string) => JSON.parse(readFileSync(join(root, file), 'utf8'))

interface LockedPackage {
  version: string
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

/** The package as it is packed, in a folder of its own. Building takes seconds: it is done once. */
function buildPackage() {
  const folder = mkdtempSync(join(tmpdir(), 'fngw-pack-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const manifest = readJson('package.json')
  for (const name of ['package.json', ...manifest.files.filter((name: string) => name !== 'dist')])
    cpSync(join(root, name), join(folder, name), { recursive: true })
  const { status, stdout } = spawnSync(
    process.execPath,
    [tsc, '-p', 'tsconfig.build.json', '--outDir', join(folder, 'dist')],
    {
      cwd: root,
      encoding: 'utf8',
    },
  )
  if (status !== 0) throw new Error(stdout)
  execFileSync(process.execPath, ['build/copy-docs.mjs', join(folder, 'dist')], { cwd: root })
  return { folder, manifest }
}

const built = buildPackage()

t.test('[package.3, package.4] what is packed resolves, and runs nothing when it is installed', async t => {
  const { folder, manifest } = built
  const { messages } = await publint({ pkgDir: folder, strict: true, pack: false })
  t.same(
    messages.map(message => formatMessage(message, manifest)),
    [],
  )

  const [packed] = JSON.parse(
    execFileSync('npm', ['pack', '--json', '--dry-run', '--ignore-scripts'], { cwd: folder, encoding: 'utf8' }),
  )
  const files: string[] = packed.files.map((file: { path: string }) => file.path)
  for (const file of ['dist/bin/fngw.js', 'dist/lib/index.js', 'dist/lib/index.d.ts', 'runtimes/python/daemon.py'])
    t.ok(files.includes(file), file)
  for (const name of ['swagger-ui-bundle.js', 'swagger-ui.css', 'LICENSE', 'NOTICE'])
    t.ok(files.includes(`dist/docs/${name}`), name)
  t.equal(manifest.dependencies['swagger-ui-dist'], undefined, 'twelve megabytes for two')
  t.same(
    files.filter(file => /\.test\.|^test\/|\.env$|node_modules/.test(file)),
    [],
  )
  for (const script of ['preinstall', 'install', 'postinstall', 'prepare']) t.notOk(script in manifest.scripts, script)
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

t.test('[package.5] types and values are found by modules and by CommonJS', async t => {
  const { folder } = built
  symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
  const user = join(folder, 'user')
  mkdirSync(join(user, 'node_modules/@types'), { recursive: true })
  symlinkSync(folder, join(user, 'node_modules/fngw'))
  for (const name of ['@types/node', 'undici-types'])
    symlinkSync(join(root, 'node_modules', name), join(user, 'node_modules', name))
  writeFileSync(join(user, 'package.json'), '{}')
  writeFileSync(join(user, 'program.cts'), `import { ${NAMES} } from 'fngw'\n${PROGRAM}`)
  writeFileSync(join(user, 'program.mts'), `import { ${NAMES} } from 'fngw'\n${PROGRAM}`)
  for (const [files, ...options] of [
    [['program.cts', 'program.mts'], '--module', 'node16'],
    [['program.cts', 'program.mts'], '--module', 'nodenext'],
    [['program.mts'], '--module', 'esnext', '--moduleResolution', 'bundler'],
  ] as const) {
    const given = ['--noEmit', '--strict', '--target', 'es2022', '--types', 'node', ...options, ...files]
    const { stdout } = spawnSync(process.execPath, [tsc, ...given], { cwd: user, encoding: 'utf8' })
    t.equal(stdout, '', options.join(' '))
  }

  const run = (text: string, ...options: string[]): string =>
    execFileSync(process.execPath, [...options, '--eval', text], { cwd: user, encoding: 'utf8' }).trim()
  const required = run("console.log(Object.keys(require('fngw')).sort().join())")
  const imported = run("console.log(Object.keys(await import('fngw')).sort().join())", '--input-type=module')
  t.equal(required.replace('__esModule,', ''), imported, 'the same values')
  const declared = readFileSync(join(root, 'cjs/index.d.cts'), 'utf8').matchAll(/declare const (\w+)/g)
  t.same([...declared].map(([, name]) => name).sort(), imported.split(','), 'every value is declared')
  t.equal(
    run("import('fngw').then(m => console.log(m.createGateway === require('fngw').createGateway))"),
    'true',
    'one copy',
  )
})
