/** Installs of Python functions by the real pip, or uv, from wheels that are made on the spot. */

import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'
import { resolveSettings, type SettingsInput } from '../../lib/config/settings.ts'
import type { FunctionVersion } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import type { GatewayError } from '../../lib/core/errors.ts'
import { Builds } from '../../lib/dependencies/resolve.ts'
import { SharedPacks } from '../../lib/dependencies/dependencies.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { createInstallers, type GatewayContext } from '../../lib/gateway/compose.ts'
import { findProgram, findTool } from '../../lib/runtime/binaries.ts'
import { makeFn } from './fn.ts'
import { makeTree, type TreeEntry } from './tree.ts'
import { makeWheels } from './wheels.ts'

const WHEELS = [
  { name: 'alpha', version: '1.0' },
  { name: 'alpha', version: '2.0' },
  { name: 'beta', version: '1.0', needs: ['alpha<2'] },
  { name: 'gamma-tools', version: '3.1', files: { 'gam/__init__.py': '' } },
]
const CACHED = fileURLToPath(new URL('../../node_modules/.cache/fngw-python/bin', import.meta.url))
/** uv's program, null where it is not installed. */
export const uv = findTool('uv', {}, `${CACHED}:${process.env.PATH ?? ''}`)

interface BedOptions {
  settings?: Record<string, unknown>
  env?: Record<string, string>
  /** As of `SettingInputs`. */
  defaults?: SettingsInput
  /** Archives of sources by name and version, `lib-1.0`, each with its `setup.py`. */
  sources?: Readonly<Record<string, string>>
}

/** Folders of functions below one root, and the real installer with wheels of its own. */
export function makePythonBed(
  t: Test,
  entries: Record<string, TreeEntry>,
  { settings = {}, env = {}, defaults = {}, sources = {} }: BedOptions = {},
) {
  const tree = makeTree(entries)
  const away = makeTree()
  // One tool in each test: what is on PATH is not the test's to say.
  const hostEnv = { ...process.env, ...makeWheels(away.root, WHEELS), ...env }
  for (const [name, setup] of Object.entries(sources)) {
    away.write({ [`${name}/setup.py`]: setup })
    execFileSync('tar', ['-czf', away.path(`wheels/${name}.tar.gz`), '-C', away.root, name])
  }
  const resolved = resolveSettings({
    defaults,
    options: { functionsRoot: tree.root, runtimes: ['python'], binaries: { uv: '/none/uv' }, ...settings } as never,
    cwd: '/',
  })
  t.same(resolved.problems, [])
  const packs = new SharedPacks(tree.root)
  const runs: string[] = []
  const notes: string[] = []
  const said: string[] = []
  const makeBuilds = () => {
    const installers = createInstallers({
      settings: resolved.settings,
      clock: systemClock,
      hostEnv,
      packs,
      journal: { log: (level: string, text: string) => void (level === 'info' ? said : notes).push(text) },
    } as unknown as GatewayContext)
    return new Builds({
      isPrivate: false,
      clock: systemClock,
      temporaryFolder: new OwnFolder(tree.root, '.svc', 'build', 'tmp'),
      hostEnv,
      builders: installers,
      waitMs: 0,
      findProgram: runtime => findProgram(runtime, {}, process.env.PATH ?? ''),
      onBegin: fn => runs.push(fn.name),
      onEnd: () => {},
      onBuilt: () => {},
      onFailure: () => {},
    })
  }
  const builds = makeBuilds()
  t.teardown(async () => {
    await builds.close()
    tree.cleanup()
    away.cleanup()
  })
  let signature = 0
  const fn = (name: string, sharedDeps: string[] = [], file = 'handler.py'): FunctionVersion => {
    const entryFile = `${name}/${file}`
    const entryPath = tree.path(entryFile)
    const policy = { sharedDeps }
    return makeFn({
      runtime: 'python',
      name,
      key: `python/${entryFile}@default`,
      fnDir: tree.path(name),
      entryPath,
      entryFile,
      signature: `${++signature}`,
      policy,
    })
  }
  return {
    tree,
    builds,
    runs,
    notes,
    said,
    fn,
    makeBuilds,
    read: (path: string) => (existsSync(tree.path(path)) ? readFileSync(tree.path(path), 'utf8') : null),
    version: (name: string, module = 'alpha') =>
      readFileSync(tree.path(`${name}/.deps/${module}/__init__.py`), 'utf8').trim(),
    record: (name: string) => builds.recordOf(fn(name)) as Record<string, unknown>,
    failure: async (name: string) =>
      (await builds.prepare(fn(name)).then(
        () => t.fail('it is refused'),
        (error: unknown) => error,
      )) as GatewayError,
  }
}
