/** Installs of node functions by the real npm from a registry on loopback. */

import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { FunctionVersion, Policy } from '../../lib/core/catalog.ts'
import { systemClock } from '../../lib/core/clock.ts'
import { GatewayError } from '../../lib/core/errors.ts'
import { Installer } from '../../lib/dependencies/install.ts'
import { createNodeStep, type NodeStepOptions } from '../../lib/dependencies/node.ts'
import { Builds } from '../../lib/dependencies/resolve.ts'
import { OwnFolder } from '../../lib/files/own-folder.ts'
import { findOnPath } from '../../lib/runtime/binaries.ts'
import { runtimeFile } from '../../lib/runtime/package-files.ts'
import { makeFn } from './fn.ts'
import { startNpmRegistry, type TestPackage } from './npm-registry.ts'
import { makeTree, type TreeEntry } from './tree.ts'

/** Two versions of one package, one with a dependency, and one with an install script. */
export const TEST_PACKAGES: readonly TestPackage[] = [
  { name: 'left', version: '1.0.0', files: { 'index.js': "module.exports = 'left 1'" } },
  { name: 'left', version: '2.1.0', files: { 'index.js': "module.exports = 'left 2'" } },
  {
    name: '@test/right',
    version: '1.5.0',
    fields: { dependencies: { left: '^1.0.0' } },
    files: { 'index.js': "module.exports = 'right with ' + require('left')" },
  },
  {
    name: 'scripted',
    version: '1.0.0',
    fields: { scripts: { postinstall: 'node make.js' } },
    files: { 'make.js': "require('fs').writeFileSync('made.txt', Object.keys(process.env).sort().join())" },
  },
]

export async function makeNpmBed(t: Test, entries: Record<string, TreeEntry>, options: Partial<NodeStepOptions> = {}) {
  const registry = await startNpmRegistry(TEST_PACKAGES)
  const tree = makeTree(entries)
  const seen = { told: [] as string[], notes: [] as string[] }
  const npm = findOnPath('npm', process.env.PATH ?? '')
  const step = createNodeStep({
    functionsRoot: tree.root,
    isOn: true,
    infers: true,
    backend: 'native',
    writesManifest: true,
    isStrict: false,
    isAhead: false,
    concurrency: 4,
    allowSources: false,
    importsScript: runtimeFile('node/find-imports.mjs'),
    findNpm: () => npm,
    onNote: text => seen.notes.push(text),
    ...options,
  })
  const makeBuilds = () =>
    new Builds({
      isPrivate: false,
      clock: systemClock,
      temporaryFolder: new OwnFolder(tree.root, '.svc', 'build', 'tmp'),
      hostEnv: {
        PATH: process.env.PATH,
        HOME: tree.path('.home'),
        npm_config_registry: registry.url,
        npm_config_cache: tree.path('.cache'),
        SECRET_TOKEN: 'secret',
        npm_config_script_shell: '/bin/false',
      },
      builders: [
        new Installer(step, {
          functionsRoot: tree.root,
          clock: systemClock,
          isPrivate: false,
          packsOf: fn => fn.policy.sharedDeps.map(name => tree.path(`.svc/packs/node/${name}`)).filter(existsSync),
        }),
      ],
      waitMs: 0,
      findProgram: () => ({ path: process.execPath, problem: null }),
      onBegin: (fn, action) => seen.told.push(`${action} ${fn.name}`),
      onEnd: () => {},
      onBuilt: ({ fn, made }) => seen.told.push(`${fn.name}: ${made.names.join(', ')}`),
      onFailure: () => {},
    })
  const builds = makeBuilds()
  t.teardown(async () => {
    await builds.close()
    await registry.close()
    tree.cleanup()
  })
  const fn = (name: string, policy: Partial<Policy> = {}, file = 'handler.js'): FunctionVersion =>
    makeFn({
      name,
      key: `node/${name}/${file}@default`,
      fnDir: tree.path(name),
      entryPath: join(tree.path(name), file),
      entryFile: `${name}/${file}`,
      policy,
    })
  return {
    tree,
    registry,
    builds,
    seen,
    fn,
    json: (path: string) => JSON.parse(readFileSync(tree.path(path), 'utf8')),
    has: (path: string) => existsSync(tree.path(path)),
    /** What node prints for an expression in a function's folder. */
    print: (name: string, code: string) =>
      execFileSync(process.execPath, ['-p', code], { cwd: tree.path(name), encoding: 'utf8' }).trim(),
    again: () => {
      const fresh = makeBuilds()
      t.teardown(() => fresh.close())
      return fresh
    },
  }
}

export async function failureOf(work: Promise<unknown>): Promise<GatewayError> {
  try {
    await work
  } catch (error) {
    if (error instanceof GatewayError) return error
  }
  throw new Error('nothing failed as it should')
}
