import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
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

t.test('[package.3, package.4] what is packed resolves, and runs nothing when it is installed', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'fngw-pack-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const manifest = readJson('package.json')
  for (const name of ['package.json', ...manifest.files.filter((name: string) => name !== 'dist')])
    cpSync(join(root, name), join(folder, name), { recursive: true })
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  const built = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.build.json', '--outDir', join(folder, 'dist')], {
    cwd: root,
    encoding: 'utf8',
  })
  t.equal(built.status, 0, built.stdout)

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
  t.same(
    files.filter(file => /\.test\.|^test\/|\.env$|node_modules/.test(file)),
    [],
  )
  for (const script of ['preinstall', 'install', 'postinstall', 'prepare']) t.notOk(script in manifest.scripts, script)
})
